"""Accuracy on tasks that are made, by difficulty.

An example's score is the share of what it asks that the model gets right (its likeliest token is the right one). All
models are asked the same examples, so that they can be compared in pairs; errors are over examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from ablate.store.documents import EvalsDocument, JsonObject, SampleRecord, Score, Section
from evals.harness.evaluate import Evaluation
from evals.reading.batches import Batches
from evals.reading.mode import evaluating
from evals.reading.question import Question
from evals.spec import EvalSpec
from zoo.costs import longest_text
from zoo.loss import IGNORED
from zoo.model import Decoder

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Answers:
    """right, nats: (examples,). Share of an example's targets that the model says, and its mean loss on them."""

    question: Question
    right: Floats
    nats: Floats

    def row(self) -> JsonObject:
        question, (accuracy, stderr), (nats, nats_stderr) = (
            self.question,
            _with_error(self.right),
            _with_error(self.nats),
        )
        return {
            "level": dict(question.level),
            "length": question.tokens.shape[1],
            "accuracy": accuracy,
            "stderr": stderr,
            "chance": question.chance,
            "nats": nats,
            "nats_stderr": nats_stderr,
            "floor": question.floor,
        }


def accuracy_by_difficulty(model: Decoder, task: str, questions: Iterable[Question], spec: EvalSpec) -> Evaluation:
    """Ask each difficulty; `spec.batch` examples are read at once, or, `auto`, some thousand tokens.

    The section `diagnostics` has one row for each; the task has scores over all examples, and over those of each value
    of each difficulty. A difficulty whose examples are longer than the model's positions has a reason.
    """
    rows, found = list[JsonObject](), list[Answers]()
    batches = Batches(spec.batch, model.spec.vocab_size)
    end = longest_text(model.spec)
    for question in questions:
        length = question.tokens.shape[1]
        if end is not None and length > end:
            rows.append({"level": dict(question.level), "length": length, "reason": f"positions end at {end}"})
            continue
        found.append(_answers(model, question, batches.rows(length)))
        rows.append(found[-1].row())
    document = EvalsDocument(
        request=spec.model_dump(mode="json"),
        scores={task: _scores(found)} if found else {},
        sections={"diagnostics": Section(about={"task": task}, rows=tuple(rows))},
    )
    return Evaluation(document, [sample for each in found for sample in _samples(task, each, _metrics(each, found))])


def _answers(model: Decoder, question: Question, batch: int) -> Answers:
    tokens, targets = torch.from_numpy(question.tokens), torch.from_numpy(question.targets)
    device = model.embedding.weight.device
    right, nats = [], []
    with evaluating(model):
        for read, asked in zip(tokens.split(batch), targets.split(batch), strict=True):
            scored = (asked != IGNORED).to(device)
            goals = asked.to(device)[scored]
            log_p = model.read_out(model.hidden(read.to(device))[scored]).float().log_softmax(dim=-1)
            right.append(_per_example(log_p.argmax(dim=-1) == goals, scored))
            nats.append(_per_example(-log_p.gather(1, goals[:, None])[:, 0], scored))
    return Answers(question, np.concatenate(right), np.concatenate(nats))


def _per_example(values: torch.Tensor, scored: torch.Tensor) -> Floats:
    """values: of each scored place, row by row; scored: (B, T) → (B,) means."""
    whole = torch.zeros(scored.shape, dtype=torch.float64, device=scored.device)
    whole[scored] = values.double()
    out: Floats = (whole.sum(dim=1) / scored.sum(dim=1)).cpu().numpy()
    return out


def _scores(found: Sequence[Answers]) -> dict[str, Score]:
    """Over all examples, and, where there are several difficulties, over those of each value of each."""
    groups: dict[str, list[Answers]] = {}
    for each in found:
        for metric in _metrics(each, found):
            groups.setdefault(metric, []).append(each)
    return {metric: _score(answers) for metric, answers in groups.items()}


def _score(answers: Sequence[Answers]) -> Score:
    right = np.concatenate([each.right for each in answers])
    chances = [each.question.chance for each in answers]
    known = [chance for chance in chances if chance is not None]
    chance = float(np.mean(known)) if len(known) == len(chances) else None
    value, stderr = _with_error(right)
    return Score(value=value, stderr=stderr, higher_is_better=True, chance=chance, items=len(right))


def _metrics(each: Answers, found: Sequence[Answers]) -> list[str]:
    """What an example counts for: `accuracy`, and `accuracy (pairs 8)` where others have other numbers of pairs."""
    varied = [name for name in each.question.level if len({other.question.level[name] for other in found}) > 1]
    return ["accuracy", *(f"accuracy ({name} {each.question.level[name]})" for name in varied)]


def _samples(task: str, each: Answers, metrics: Sequence[str]) -> Iterable[SampleRecord]:
    """Every example as an item, for paired tests."""
    level = ", ".join(f"{name} {value}" for name, value in each.question.level.items())
    for row, right in enumerate(each.right.tolist()):
        yield SampleRecord(task=task, doc_id=row, doc_hash=level, metrics=dict.fromkeys(metrics, right))


def _with_error(values: Floats) -> tuple[float, float | None]:
    """Mean and standard error over examples."""
    return float(values.mean()), float(stats.sem(values)) if len(values) > 1 else None
