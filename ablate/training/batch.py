"""What a model is given to learn from, and to be tested on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ablate.data.examples import Examples, Rows
from zoo.loss import IGNORED


@dataclass(frozen=True)
class Batch:
    """tokens: (B, T), what the model reads; targets: (B, T), what each is to predict, −100 where nothing is asked.

    `given` is what else the model's loss takes, by the names of its arguments.
    """

    tokens: Tensor
    targets: Tensor
    given: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def next_token(cls, windows: Tensor) -> Batch:
        """windows: (B, T + 1). Every token predicts the one after it."""
        return cls(windows[:, :-1], windows[:, 1:])

    @classmethod
    def of(cls, rows: Rows, device: str) -> Batch:
        """What a corpus gives: windows of text, or examples that say what they ask."""
        if isinstance(rows, Examples):
            return cls(torch.from_numpy(rows.tokens).to(device), torch.from_numpy(rows.targets).to(device))
        return cls.next_token(torch.from_numpy(rows).to(device))

    @property
    def scored(self) -> int:
        """How many targets count."""
        return int((self.targets != IGNORED).sum())
