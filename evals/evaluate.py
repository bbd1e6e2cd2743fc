"""Running evaluations on a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from evals.counting import counting
from evals.evaluations.tasks import TasksSpec
from evals.found import Found
from evals.spec import EvalSettings
from evals.subject import Data, Subject
from store.documents import EvalsDocument, SampleRecord, Section
from zoo.model import Decoder


class Evaluation(NamedTuple):
    """Result kept in the store: scores and tables, and one record per item."""

    document: EvalsDocument
    samples: list[SampleRecord]


def evaluate_all(spec: EvalSettings, subject: Subject, data: Data) -> Evaluation:
    """Run every evaluation that a spec requests."""
    found: dict[str, Found] = {}
    for name, each in spec.asked().items():
        with counting(name):
            found[name] = each.run(subject, data)
    return _evaluation(spec, found)


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
    """Run the lm-eval tasks of a spec, if it has any. The same arguments give the same scores.

    documents: held-out texts, from which the tasks that ship with the project build their items.
    context: the maximum number of tokens that the model reads at once. eos: the token that ends a document.
    answers: a file that caches the model's answers; models may share one.
    Raises UnknownTaskError for a name that neither the project, `spec.include` nor lm-eval defines.
    """
    from evals.harness.evaluate import evaluate_tasks  # noqa: PLC0415 (lm-eval is slow to load)
    from evals.harness.lm import ZooLM  # noqa: PLC0415

    tasks = spec.asked().get("tasks")
    if not isinstance(tasks, TasksSpec):
        return _evaluation(spec, {})
    lm = ZooLM(
        model, tokenizer, eos=eos, bos=spec.bos, context=context, batch=spec.batch, seed=spec.seed, answers=answers
    )
    return _evaluation(spec, {"tasks": evaluate_tasks(tasks, lm, documents)})


def _evaluation(spec: EvalSettings, found: Mapping[str, Found]) -> Evaluation:
    parts = found.values()
    document = EvalsDocument(
        request=spec.model_dump(mode="json"),
        scores={task: dict(metrics) for each in parts for task, metrics in each.scores.items() if metrics},
        groups={name: group for each in parts for name, group in each.groups.items()},
        skipped={task: reason for each in parts for task, reason in each.skipped.items()},
        sections={name: Section(about=dict(each.about), rows=tuple(each.rows)) for name, each in found.items()},
    )
    return Evaluation(document, [item for each in parts for item in each.items])
