"""How often a model's likeliest token is right, by how likely the model says it is."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from pydantic import Field, PositiveInt

from evals.evaluations import EvaluationSpec
from evals.found import Found
from evals.option import Option, whole
from evals.reading.passes import evaluating
from evals.reading.windows import Reader, stretches
from evals.subject import HeldOutText, Subject
from store.documents import JsonObject, SampleRecord, Score


class ConfidenceSpec(EvaluationSpec):
    """Share of positions at which the likeliest token is right, by the probability that the model gives it."""

    tokens: PositiveInt = 16_384
    """About how many tokens of held-out text are read."""
    bins: Annotated[int, Field(ge=1, le=100), Option("N", whole)] = 10
    """So many ranges of confidence."""

    def run(self, subject: Subject, data: HeldOutText) -> Found:
        reader = Reader.of(subject.model, data.text, subject.context, subject.batch)
        if reason := reader.reason(subject.context):
            return Found(rows=[{"reason": reason}])
        within = stretches(len(data.text.tokens), [subject.context], self.tokens, subject.seed)
        sure, right = [], []
        with evaluating(subject.model):
            for rows in torch.from_numpy(data.text.windows(within.starts, subject.context)).split(reader.batch):
                read = rows[:, :-1].to(subject.model.embedding.weight.device)
                logits = subject.model(read)[:, -subject.context :]  # a model's BOS may stand before the window
                confidence, likeliest = logits.double().softmax(-1).max(-1)
                sure.append(confidence.cpu().numpy())
                right.append((likeliest.cpu() == rows[:, -subject.context :]).numpy())
        confidence, correct = np.concatenate(sure), np.concatenate(right)
        by_window = correct.mean(axis=1)
        score = Score(value=by_window.mean(), stderr=None, higher_is_better=True, chance=None, items=len(by_window))
        items = [
            SampleRecord(task="confidence", doc_id=row, doc_hash=str(start), metrics={"accuracy": float(value)})
            for row, (start, value) in enumerate(zip(within.starts, by_window, strict=True))
        ]
        return Found(scores={"confidence": {"accuracy": score}}, items=items, rows=self._rows(confidence, correct))

    def _rows(self, confidence: np.ndarray, correct: np.ndarray) -> list[JsonObject]:
        """One for each range that any token is in."""
        ranges = np.minimum((confidence * self.bins).astype(int), self.bins - 1)
        chosen = ((place, ranges == place) for place in np.unique(ranges))
        return [
            {"range": int(place), "confidence": float(confidence[of].mean()), "accuracy": float(correct[of].mean())}
            for place, of in chosen
        ]
