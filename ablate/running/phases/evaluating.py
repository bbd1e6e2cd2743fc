"""Evaluation of a trained model on tasks and diagnostics."""

from __future__ import annotations

import time
from pathlib import Path

from ablate.data import SyntheticCorpus, open_corpus
from ablate.machine.numerics import Numerics
from ablate.running.request import Request
from ablate.training.spec import TrainSpec
from ablate.training.trained import conventions_of, trained_model, trained_tokenizer
from evals.conventions import Bos
from evals.evaluate import evaluate_all
from evals.reading.windows import Text
from evals.spec import EvalSpec
from evals.subject import HeldOutText, Subject, SyntheticTask
from store import Store, answers, checksum, sums


def evaluate(request: Request, numerics: Numerics) -> None:
    """Evaluate the model of a trained run, and store scores and samples."""
    store, spec = Store(request.store), EvalSpec.model_validate(request.evals)
    model = trained_model(store, request.digest, numerics.device)
    answers.bind(store.answers_path(request.digest), checksum.of_file(store.model_dir(request.digest) / sums.NAME))
    subject = Subject(
        model,
        context=TrainSpec.model_validate(request.identity.train).context,
        batch=spec.batch,
        seed=spec.seed,
        answers=store.answers_path(request.digest),
    )
    began = time.monotonic()
    with numerics.autocast():
        document, samples = evaluate_all(spec, subject, _data(request, spec.bos))
    document = document.model_copy(update={"seconds": time.monotonic() - began})
    store.write_evals(request.digest, str(request.evals_digest), document, samples)


def _data(request: Request, bos: Bos) -> HeldOutText | SyntheticTask:
    store, run = Store(request.store), request.identity
    corpus, part = open_corpus(Path(request.corpus)), run.reads
    if isinstance(corpus, SyntheticCorpus):
        return SyntheticTask(corpus.source.source, corpus.questions)
    conventions = conventions_of(store, run, corpus.eos, bos)
    return HeldOutText(
        tokenizer=trained_tokenizer(store, run.digest),
        conventions=conventions,
        text=Text(*corpus.held_out_tokens(part), conventions.before),
        documents=lambda: corpus.held_out(part),
        train=lambda: corpus.tokens("train"),
    )
