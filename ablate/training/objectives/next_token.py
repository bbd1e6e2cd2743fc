"""Causal language modelling."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from ablate.training.batch import Batch
from ablate.training.objectives import Objective, Windows, without_encoder
from zoo.errors import SpecError
from zoo.spec import ModelSpec


class NextToken(Objective):
    """Every token predicts the one after it: −log p(t_{i+1} | t_1 … t_i), averaged over all tokens."""

    kind: Literal["next_token"] = "next_token"
    counts: ClassVar[str] = "every token"

    def check(self, model: ModelSpec) -> None:
        without_encoder(self.kind, model)
        if model.visible != "causal":
            fitting = {"all": "masked", "prefix": "prefix"}[model.visible]
            reason = f"the objective next_token needs a causal model, but visible is {model.visible}"
            raise SpecError("visible", f"{reason}: set train.objective to {fitting}")

    def batch(self, windows: Windows, vocabulary: int, rng: np.random.Generator) -> Batch:
        return Batch.next_token(windows)
