"""Training objectives, one per file. It makes batches of windows of text, and says what counts.

Losses of different objectives are over different targets and do not compare: every arm of a study has the same.
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
    """Windows of text → what a model reads and what it is to predict."""

    counts: ClassVar[str]
    """The targets that the loss is a mean over, and whose bytes bits per byte are over: `every token`."""

    @abstractmethod
    def check(self, model: ModelSpec) -> None:
        """Raise SpecError where the objective has no meaning for a kind of model."""

    @abstractmethod
    def batch(self, windows: Windows, vocabulary: int, rng: np.random.Generator) -> Batch:
        """windows: (B, T + 1) tokens of text → tokens, targets, and which token of the window each target is.

        vocabulary: the model's, the last ids of which are the objective's own.
        """

    def extra_tokens(self, context: int) -> int:
        """Number of ids that it needs beside the text's, in windows of `context` tokens."""
        return 0

    def cost(self, model: ModelSpec, context: int) -> Cost:
        """Training cost per token of text, in windows of `context` tokens."""
        return cost(model, context)


def without_encoder(kind: str, model: ModelSpec) -> None:
    """Raise SpecError for a model that has an encoder."""
    if model.encoder is not None:
        raise SpecError("encoder", f"the objective {kind} gives an encoder nothing to read: use span_corruption")
