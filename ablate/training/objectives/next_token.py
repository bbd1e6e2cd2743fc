"""Causal language modelling."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from ablate.training.batch import Batch
from ablate.training.objectives import Objective, Windows, without_encoder
from zoo.compatibility.support import unsupported
from zoo.compatibility.traits import Operation
from zoo.errors import SpecError
from zoo.spec import ModelSpec


class NextToken(Objective):
    """Every token predicts the one after it: −log p(t_{i+1} | t_1 … t_i), averaged over all tokens."""

    kind: Literal["next_token"] = "next_token"
    documents: Literal["joined", "apart"] = Field(default="joined", exclude_if=lambda documents: documents == "joined")
    """What a token sees of a window with parts of several documents: all before it, or, `apart`, its own document only,
    with positions that start anew in each (the mask is that of Llama 3, arXiv:2407.21783, section 3.2). Mixers that
    carry a state along a text refuse it. Budgets count FLOPs as if documents were joined."""
    counts: ClassVar[str] = "every token"

    def check(self, model: ModelSpec) -> None:
        without_encoder(self.kind, model)
        if model.visible != "causal":
            fitting = {"all": "masked", "prefix": "prefix"}[model.visible]
            reason = f"the objective next_token needs a causal model, but visible is {model.visible}"
            raise SpecError("visible", f"{reason}: set train.objective to {fitting}")
        if self.documents == "apart" and (found := unsupported(model, Operation.DOCUMENTS)):
            raise SpecError("", f"`documents: apart` does not support {found[0]}")

    def batch(self, windows: Windows, vocabulary: int, rng: np.random.Generator, eos: int) -> Batch:
        batch = Batch.next_token(windows)
        if self.documents == "joined":
            return batch
        return replace(batch, given={"documents": (batch.tokens == eos).cumsum(dim=1)})
