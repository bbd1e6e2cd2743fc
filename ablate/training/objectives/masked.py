"""Masked-language modelling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator

from ablate.training.batch import Batch
from ablate.training.objectives import Objective, Windows
from ablate.training.objectives._holes import Filling, FillsHoles, Tokens, check_room, joined
from zoo.errors import SpecError
from zoo.loss import IGNORED
from zoo.model import Decoder
from zoo.spec import ModelSpec, longest_text

Share = Annotated[float, Field(ge=0, le=1)]


class Masked(Objective, FillsHoles):
    """Predict a random share `rate` of the tokens from the whole text, in which [MASK] replaces a share `mask` of them,
    a random token replaces a share `random`, and the others stay. Devlin et al. 2018 (BERT), arXiv:1810.04805 §3.1.
    Every reading of a window draws anew.
    """

    kind: Literal["masked"] = "masked"
    counts: ClassVar[str] = "the tokens selected for prediction, masked or not"
    new: ClassVar[int] = 1
    rate: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Share of a window's tokens that are predicted."""
    mask: Share = 0.8
    """Share of the predicted tokens that are replaced by [MASK] in the input."""
    random: Share = 0.1
    """Share of the predicted tokens that are replaced by a random token; the rest, beyond `mask` and `random`, stays
    unchanged."""

    @model_validator(mode="after")
    def _shares(self) -> Self:
        if self.mask + self.random > 1 + 1e-9:
            raise SpecError(
                "random",
                f"mask + random must be at most 1, not {self.mask + self.random:g}: both are shares of the same tokens",
            )
        return self

    def check(self, model: ModelSpec) -> None:
        if model.visible != "all":
            raise SpecError("visible", "the objective masked needs an encoder: set visible to all")

    def extra_tokens(self, context: int) -> int:
        return 1

    def batch(self, windows: Windows, vocabulary: int, rng: np.random.Generator, eos: int) -> Batch:
        text, mask_id = windows[:, 1:], vocabulary - 1
        rows, length = text.shape
        order = rng.permuted(np.broadcast_to(np.arange(length), (rows, length)), axis=1)  # a permutation per row
        asked = order < max(1, round(self.rate * length))
        fate = rng.random(text.shape)
        drawn = rng.integers(mask_id, size=text.shape)
        tokens = np.where(asked & (fate < self.mask), mask_id, text)
        tokens = np.where(asked & (self.mask <= fate) & (fate < self.mask + self.random), drawn, tokens)
        return Batch(torch.from_numpy(tokens), torch.from_numpy(np.where(asked, text, IGNORED)))

    def fill(self, model: Decoder, pieces: Sequence[Tokens], how: Filling) -> list[Tokens]:
        """Each hole is `how.new` tokens [MASK], filled from left to right: each choice sees the whole text, with
        earlier choices and the remaining masks."""
        mask, holes = model.spec.vocab_size - 1, len(pieces) - 1
        text = joined(pieces, [[mask] * how.new] * holes)
        check_room("the text with its masks", len(text), longest_text(model.spec))
        filled: list[Tokens] = []
        end = 0
        for piece in pieces[:-1]:
            start, end = end + len(piece), end + len(piece) + how.new
            for place in range(start, end):
                stream = model.hidden(torch.tensor([text], device=model.device))
                text[place] = how.choose(model.read_out(stream[:, place]), text)
            filled.append(text[start:end])
        return filled
