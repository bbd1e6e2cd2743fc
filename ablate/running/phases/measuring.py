"""Measurement of a trained model: speed, memory, and loss under several kinds of KV cache."""

from __future__ import annotations

import time
from pathlib import Path

from ablate.data import Corpus, open_corpus
from ablate.machine.numerics import Numerics
from ablate.running.request import Request
from ablate.training.trained import trained_model
from evals.costs import speed
from evals.costs.contention import waiting
from evals.costs.sensors import watched
from evals.costs.spec import MeasureSpec
from evals.reading.windows import Text
from store import Store


def measure(request: Request, numerics: Numerics) -> None:
    """Measure the model of a trained run, and store the measurement."""
    store, spec, run = Store(request.store), MeasureSpec.model_validate(request.measure), request.identity
    model = trained_model(store, run.digest, numerics.device)
    # Held-out text, needed only to score other kinds of cache than the plain one.
    corpus = open_corpus(Path(request.corpus)) if len(spec.caches) > 1 else None
    text = Text(*corpus.held_out_tokens(run.reads), run.begins) if isinstance(corpus, Corpus) else None
    began = time.monotonic()
    with waiting() as waited, watched(numerics.device) as sensors:
        found = speed.measure(model.to(numerics.torch_dtype), spec, text)
    told = {"seconds": time.monotonic() - began, "waiting": waited.share, "gpu": sensors.state}
    found = found.model_copy(update=told)
    store.write_measure(run.digest, str(request.measure_digest), found)
