"""Accuracy on synthetic tasks, by difficulty.

An example's score is the share of its targets that the model gets right (its likeliest token is the right one). All
models get the same examples, for paired comparisons; standard errors are over examples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import BeforeValidator, Field, PositiveInt

from evals.evaluations import EvaluationSpec
from evals.found import Found
from evals.option import Option, named_numbers, once, whole
from evals.reading.passes import Batches, evaluating
from evals.reading.question import Question
from evals.reading.windows import Floats
from evals.subject import Conditions, Data, Subject, SyntheticTask
from store.documents import JsonObject, SampleRecord, Score
from zoo.loss import IGNORED
from zoo.model import Decoder
from zoo.spec import longest_text


def _lists(given: Any) -> Any:
    """Wrap single values, which may be written without brackets, in lists."""
    return {k: v if isinstance(v, list) else [v] for k, v in given.items()} if isinstance(given, dict) else given


class DiagnosticsSpec(EvaluationSpec):
    """Accuracy by difficulty, on a synthetic task."""

    reads: ClassVar[type[Data]] = SyntheticTask
    by_default: ClassVar[bool] = True

    examples: Annotated[PositiveInt, Option("N", whole, name="limit")] = 256
    """Examples per difficulty of a synthetic task (default: 256)."""
    at: Annotated[dict[str, list[int]], BeforeValidator(_lists), Option("DIFFICULTY=N,N", named_numbers, once)] = Field(
        default={}
    )
    """Difficulties other than those of training, such as longer examples: `{pairs: [4, 64]}` in a
    study, `pairs=4,64` on the command line."""

    def problems(self, conditions: Conditions) -> Iterator[tuple[str, str]]:
        if reason := conditions.difficulty_error(self.at):
            yield "at", reason

    def run(self, subject: Subject, data: SyntheticTask) -> Found:
        """A row for each difficulty; if its examples are longer than the model's positions, it has a reason.

        Scores are over all examples, and over the examples of each value of each difficulty.
        """
        rows, found = list[JsonObject](), list[ExampleAnswers]()
        batches = Batches(subject.batch, subject.model.spec.vocab_size)
        end = longest_text(subject.model.spec)
        for question in data.questions(self.at, self.examples, subject.seed):
            length = question.tokens.shape[1]
            if end is not None and length > end:
                rows.append({"level": dict(question.level), "length": length, "reason": f"reads at most {end} tokens"})
                continue
            found.append(_answers(subject.model, question, batches.rows(length)))
            rows.append(found[-1].row())
        items = []  # every example, for paired tests
        groups: dict[str, list[ExampleAnswers]] = {}
        for each in found:
            level = ", ".join(f"{name} {value}" for name, value in each.question.level.items())
            numbers = each.question.level.items()
            varied = [(n, value) for n, value in numbers if len({other.question.level[n] for other in found}) > 1]
            # `accuracy`, and `accuracy (pairs 8)` if numbers of pairs vary
            metrics = ["accuracy", *(f"accuracy ({name} {value})" for name, value in varied)]
            for metric in metrics:
                groups.setdefault(metric, []).append(each)
            items += [
                SampleRecord(task=data.source, doc_id=row, doc_hash=level, metrics=dict.fromkeys(metrics, right))
                for row, right in enumerate(each.right.tolist())
            ]
        return Found(
            scores={data.source: {metric: _score(answers) for metric, answers in groups.items()}},
            items=items,
            about={"task": data.source},
            rows=rows,
        )


@dataclass(frozen=True)
class ExampleAnswers:
    """right, nats: (examples,). Share of an example's targets that the model gets right, and its mean loss on them."""

    question: Question
    right: Floats
    nats: Floats

    def row(self) -> JsonObject:
        question = self.question
        accuracy, stderr = _with_error(self.right)
        nats, nats_stderr = _with_error(self.nats)
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


def _answers(model: Decoder, question: Question, batch: int) -> ExampleAnswers:
    tokens, targets = torch.from_numpy(question.tokens), torch.from_numpy(question.targets)
    device = model.device
    right, nats = [], []
    with evaluating(model):
        for read, asked in zip(tokens.split(batch), targets.split(batch), strict=True):
            scored = (asked != IGNORED).to(device)
            goals = asked.to(device)[scored]
            log_p = model.read_out(model.hidden(read.to(device))[scored]).float().log_softmax(dim=-1)
            right.append(_per_example(log_p.argmax(dim=-1) == goals, scored))
            nats.append(_per_example(-log_p.gather(1, goals[:, None])[:, 0], scored))
    return ExampleAnswers(question, np.concatenate(right), np.concatenate(nats))


def _per_example(values: torch.Tensor, scored: torch.Tensor) -> Floats:
    """values: one per scored token, row by row; scored: (B, T) → means of rows: (B,)."""
    whole = torch.zeros(scored.shape, dtype=torch.float64, device=scored.device)
    whole[scored] = values.double()
    return (whole.sum(dim=1) / scored.sum(dim=1)).cpu().numpy()


def _score(answers: Sequence[ExampleAnswers]) -> Score:
    right = np.concatenate([each.right for each in answers])
    chances = [each.question.chance for each in answers]
    known = [chance for chance in chances if chance is not None]
    chance = float(np.mean(known)) if len(known) == len(chances) else None
    value, stderr = _with_error(right)
    return Score(value=value, stderr=stderr, higher_is_better=True, chance=chance, items=len(right))


def _with_error(values: Floats) -> tuple[float, float | None]:
    """Mean and standard error over examples."""
    return float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else None
