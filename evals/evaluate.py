"""Running evaluations on a model."""

from __future__ import annotations

from typing import NamedTuple

from evals.found import Found, counting
from evals.spec import EvalSettings
from evals.subject import Data, Subject
from store.documents import EvalsDocument, SampleRecord, Section


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
    parts = found.values()
    document = EvalsDocument(
        request=spec.model_dump(mode="json"),
        scores={task: dict(metrics) for each in parts for task, metrics in each.scores.items() if metrics},
        groups={name: group for each in parts for name, group in each.groups.items()},
        skipped={task: reason for each in parts for task, reason in each.skipped.items()},
        sections={name: Section(about=dict(each.about), rows=tuple(each.rows)) for name, each in found.items()},
    )
    return Evaluation(document, [item for each in parts for item in each.items])
