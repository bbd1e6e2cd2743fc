"""Attention maps of every head on one passage of held-out text."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from pydantic import Field, JsonValue
from torch import Tensor

import zoo
from ablate.store.documents import JsonObject
from evals.evaluations import EvaluationSpec
from evals.evaluations._passages import nothing, obstacle, plain, starts_of
from evals.found import Found
from evals.reading.mode import evaluating
from evals.subject import HeldOutText, Subject


class AttentionSpec(EvaluationSpec):
    """Attention maps of every head on one passage of held-out text."""

    tokens: Annotated[int, Field(ge=2, le=64)] = 32
    """Tokens of the passage; no more than the training context."""
    layers: Annotated[int, Field(ge=1, le=8)] = 4
    """At most this many layers, spread from the first to the last."""
    heads: Annotated[int, Field(ge=1, le=16)] = 8
    """At most this many heads of each layer, the first ones."""

    def run(self, subject: Subject, data: HeldOutText) -> Found:
        """A row for each layer: the tokens as text, and by head a row of weights for each token, up to itself.

        Only softmax attention over tokens has such weights.
        """
        length = min(self.tokens, subject.context)
        if reason := obstacle(subject.model, data.text, reads=data.text.read(length), takes=length):
            return nothing(reason)
        starts = starts_of(data.text, length, 1, subject.seed)
        (tokens,) = data.text.windows(starts, length - 1)
        layers = _weights(subject, torch.from_numpy(tokens[None]))
        if not layers:
            return nothing("no layer has attention weights")
        pieces: JsonValue = [plain(data.tokenizer, [token]) for token in tokens.tolist()]
        chosen = sorted({round(place) for place in np.linspace(0, len(layers) - 1, min(self.layers, len(layers)))})
        rows: list[JsonObject] = [
            {"layer": layer, "pieces": pieces, "heads": [_triangle(head) for head in weights[: self.heads]]}
            for layer, weights in (layers[place] for place in chosen)
        ]
        return Found(rows=rows)


def _weights(subject: Subject, tokens: Tensor) -> list[tuple[int, Tensor]]:
    """(layer, (H, T, T)) of the layers that have weights, in their order."""
    with evaluating(subject.model), zoo.taps(subject.model, "blocks.*.mixer.weights") as seen:
        subject.model.hidden(tokens.to(subject.model.embedding.weight.device))
    return sorted(((int(name.split(".")[1]), found[0][0]) for name, found in seen.items()), key=lambda pair: pair[0])


def _triangle(weights: Tensor) -> JsonValue:
    """(T, T) → rows of 1, 2, … T weights."""
    rows = weights.double().cpu().tolist()
    return [[round(value, 3) for value in row[: place + 1]] for place, row in enumerate(rows)]
