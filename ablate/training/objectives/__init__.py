"""Training objectives, one per file. An objective turns windows of text into batches, and selects the scored targets.

Losses of different objectives are over different targets and not comparable: all arms of a study share one.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ablate.training.batch import Batch
from zoo.costs import Cost, cost
from zoo.errors import SpecError
from zoo.settings.axis import Variant
from zoo.spec import ModelSpec

Windows = NDArray[np.int64]


class Objective(Variant):
    """Windows of text → a model's input and its targets."""

    counts: ClassVar[str]
    """Targets over which the loss is a mean and whose bytes count in bits per byte, in words: `every token`."""

    @abstractmethod
    def check(self, model: ModelSpec) -> None:
        """Raise SpecError if the objective does not fit the kind of model."""

    def __str__(self) -> str:
        """The kind, and settings that are not the defaults: `masked (rate 0.3)`."""
        own = self.model_dump(mode="json", exclude={"kind"}, exclude_defaults=True)
        said = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in own.items())
        return f"{self.kind} ({said})" if said else self.kind

    @abstractmethod
    def batch(self, windows: Windows, vocabulary: int, rng: np.random.Generator, eos: int) -> Batch:
        """windows: (B, T + 1) tokens of text → tokens, targets, and the position of each target's token in the window.

        vocabulary: number of the model's ids, the last of which are the objective's own. eos: the id before each
            document and after the last.
        """

    def extra_tokens(self, context: int) -> int:
        """Number of ids that it needs besides the text's, in windows of `context` tokens."""
        return 0

    def cost(self, model: ModelSpec, context: int) -> Cost:
        """Training cost per token of text, in windows of `context` tokens."""
        return cost(model, context)


def without_encoder(kind: str, model: ModelSpec) -> None:
    """Raise SpecError for a model that has an encoder."""
    if model.encoder is not None:
        raise SpecError("encoder", f"the objective {kind} has no input for an encoder: use span_corruption")
