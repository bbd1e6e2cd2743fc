"""Prefix language modelling."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import torch

from ablate.training.batch import Batch
from ablate.training.objectives import Objective, Windows, without_encoder
from zoo.costs import Cost, cost
from zoo.errors import SpecError
from zoo.loss import IGNORED
from zoo.spec import ModelSpec


class Prefix(Objective):
    """The first P tokens of a window are given, P drawn uniformly from 1 … T, and the tokens after them are predicted:
    −log p(t_{i+1} | t_1 … t_i) for i ≥ P. Raffel et al. 2019 (T5), arXiv:1910.10683 §3.2.

    A model with `visible: prefix` reads the prefix bidirectionally. A causal model may be trained on the same targets,
    for comparison.
    """

    kind: Literal["prefix"] = "prefix"
    counts: ClassVar[str] = "the tokens after a prefix of random length"

    def check(self, model: ModelSpec) -> None:
        without_encoder(self.kind, model)
        if model.visible == "all":
            raise SpecError(
                "visible", "the objective prefix needs a prefix LM or a causal model: set visible to prefix or causal"
            )

    def batch(self, windows: Windows, vocabulary: int, rng: np.random.Generator, eos: int) -> Batch:
        whole = Batch.next_token(windows)
        rows, length = whole.tokens.shape
        prefix = torch.from_numpy(rng.integers(1, length, size=rows, endpoint=True))
        known = torch.arange(length) < prefix[:, None] - 1
        return replace(whole, targets=whole.targets.masked_fill(known, IGNORED), given={"prefix": prefix})

    def cost(self, model: ModelSpec, context: int) -> Cost:
        """Cost with the query-key pairs that a prefix adds: E[P(P − 1)] = (T² − 1)/3 of T(T − 1)."""
        return cost(model, context, prefix=(context + 1) / (3 * context))
