"""Attention maps of some heads on one passage of held-out text."""

from __future__ import annotations

from operator import itemgetter
from typing import Annotated

import numpy as np
import torch
from pydantic import Field, JsonValue

import zoo
from evals.evaluations import EvaluationSpec
from evals.evaluations._passages import nothing, obstacle, plain, starts_of
from evals.found import Found
from evals.reading.passes import evaluating
from evals.subject import HeldOutText, Subject
from store.documents import JsonObject


class AttentionSpec(EvaluationSpec):
    """Attention maps of some heads on one passage of held-out text."""

    tokens: Annotated[int, Field(ge=2, le=64)] = 32
    """Tokens of the passage; no more than the training context."""
    layers: Annotated[int, Field(ge=1, le=8)] = 4
    """Maximum number of layers, spread from the first to the last."""
    heads: Annotated[int, Field(ge=1, le=16)] = 8
    """Maximum number of heads of each layer, the first ones."""

    def run(self, subject: Subject, data: HeldOutText) -> Found:
        """A row for each layer: the tokens as text, and for each head and token its weights, up to the token itself.

        Only softmax attention over tokens has such weights.
        """
        length = min(self.tokens, subject.context)
        if reason := obstacle(subject.model, data.text, reads=data.text.read(length), takes=length):
            return nothing(reason)
        starts = starts_of(data.text, length, 1, subject.seed)
        (tokens,) = data.text.windows(starts, length - 1)
        with evaluating(subject.model), zoo.taps(subject.model, "blocks.*.mixer.weights") as seen:
            subject.model.hidden(torch.from_numpy(tokens[None]).to(subject.model.device))
        # (layer, (H, T, T)) of the layers that have weights, in order
        layers = sorted(((int(name.split(".")[1]), each[0][0]) for name, each in seen.items()), key=itemgetter(0))
        if not layers:
            return nothing("no layer has attention weights")
        pieces: JsonValue = [plain(data.tokenizer, [token]) for token in tokens.tolist()]
        chosen = sorted({round(place) for place in np.linspace(0, len(layers) - 1, min(self.layers, len(layers)))})
        rows: list[JsonObject] = []
        for layer, weights in (layers[place] for place in chosen):
            heads = weights[: self.heads].double().cpu().tolist()
            # (T, T) → rows of 1, 2, … T weights
            kept: JsonValue = [[[round(v, 3) for v in row[: t + 1]] for t, row in enumerate(head)] for head in heads]
            rows.append({"layer": layer, "pieces": pieces, "heads": kept})
        return Found(rows=rows)
