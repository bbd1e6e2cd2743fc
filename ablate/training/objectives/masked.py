"""Masked-language modelling."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator

from ablate.training.batch import Batch
from ablate.training.objectives import Objective, Windows, permutation
from zoo.errors import SpecError
from zoo.loss import IGNORED
from zoo.spec import ModelSpec

Share = Annotated[float, Field(ge=0, le=1)]


class Masked(Objective):
    """A share `rate` of the tokens, drawn at random, is to be predicted from all of the text, in which `mask` of them
    are replaced by a token [MASK], `random` by a token drawn at random, and the others left. Devlin et al. 2018 (BERT),
    arXiv:1810.04805 §3.1. Every time a window is read, others are drawn.
    """

    kind: Literal["masked"] = "masked"
    counts: ClassVar[str] = "the tokens drawn to be predicted, masked or not"
    rate: Annotated[float, Field(gt=0, lt=1)] = 0.15
    mask: Share = 0.8
    random: Share = 0.1

    @model_validator(mode="after")
    def _shares(self) -> Self:
        if self.mask + self.random > 1 + 1e-9:
            raise SpecError("random", f"mask and random are shares of the same tokens: {self.mask + self.random:g} > 1")
        return self

    def check(self, model: ModelSpec) -> None:
        if model.visible != "all":
            raise SpecError("visible", "the objective masked is for models that see all of a text: set visible to all")

    def extra_tokens(self, context: int) -> int:
        return 1

    def batch(self, windows: Windows, vocabulary: int, rng: np.random.Generator) -> Batch:
        text, mask_id = windows[:, 1:], vocabulary - 1
        rows, length = text.shape
        asked = permutation(rng, rows, length) < max(1, round(self.rate * length))
        fate = rng.random(text.shape)
        drawn = rng.integers(mask_id, size=text.shape)
        tokens = np.where(asked & (fate < self.mask), mask_id, text)
        tokens = np.where(asked & (self.mask <= fate) & (fate < self.mask + self.random), drawn, tokens)
        return Batch(torch.from_numpy(tokens), torch.from_numpy(np.where(asked, text, IGNORED)))
