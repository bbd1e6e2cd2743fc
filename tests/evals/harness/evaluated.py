"""The tasks of a spec, on a model and texts at hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from tokenizers import Tokenizer

from evals.conventions import TrainedConventions
from evals.spec import EvalSettings, Evaluation, evaluate_all
from evals.subject import HeldOutText, Subject
from zoo.model import Decoder


def evaluate(
    model: Decoder,
    tokenizer: Tokenizer,
    documents: Sequence[str],
    spec: EvalSettings,
    *,
    context: int,
    eos: int,
    answers: Path | None = None,
) -> Evaluation:
    """Scores of a model on the tasks, whose items may come from these held-out documents."""
    subject = Subject(model, context, spec.batch, spec.seed, answers)
    text = cast(Any, None)  # tasks read documents
    conventions = TrainedConventions(tokenizer, eos, spec.bos)
    return evaluate_all(spec, subject, HeldOutText(tokenizer, conventions, text, lambda: documents, text))
