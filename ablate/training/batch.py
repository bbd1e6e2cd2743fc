"""What a model is given to learn from, and to be tested on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

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

    @property
    def scored(self) -> int:
        """How many targets count."""
        return int((self.targets != IGNORED).sum())
