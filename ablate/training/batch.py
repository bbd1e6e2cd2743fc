"""Batches for training and validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ablate.data.corpus import Examples
from zoo.loss import IGNORED
from zoo.site import Given

Loss = Callable[..., tuple[Tensor, Tensor]]
"""(tokens (B, T), targets (B, N), further inputs of the batch) → (objective to minimise, nats per scored target)."""


@dataclass(frozen=True)
class Batch:
    """tokens: (B, T), the model's input; targets: (B, N), the tokens to predict, −100 where nothing is scored.

    given: further arguments of the model's loss, by name. places: (B, N), position in the window of each target's
    token, −1 for none; None if target i is token i + 1.
    """

    tokens: Tensor
    targets: Tensor
    given: Given = field(default_factory=Given)
    places: Tensor | None = None

    @classmethod
    def next_token(cls, windows: NDArray[np.int64] | Tensor) -> Batch:
        """windows: (B, T + 1). Every token predicts the one after it."""
        tokens = torch.as_tensor(windows)
        return cls(tokens[:, :-1], tokens[:, 1:])

    def after(self, before: Sequence[int]) -> Batch:
        """The same targets, with the tokens `before` in place of each window's first token. Only the last of them has a
        target."""
        if not before:
            return self
        head = self.tokens.new_tensor(before).expand(len(self), -1)
        unasked = self.targets.new_full((len(self), len(before) - 1), IGNORED)
        tokens, targets = torch.cat((head, self.tokens[:, 1:]), dim=1), torch.cat((unasked, self.targets), dim=1)
        if "documents" not in self.given:
            return Batch(tokens, targets)
        documents = self.given["documents"]
        return Batch(tokens, targets, {"documents": torch.cat((documents[:, :1].expand_as(unasked), documents), dim=1)})

    def to(self, device: str) -> Batch:
        """The batch on a device. Pinned memory is copied asynchronously."""
        return self.each(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> Batch:
        """The batch in pinned memory, which a GPU reads asynchronously. Tensors are made contiguous first: others would
        be copied once more, to memory that is not pinned."""
        return self.each(lambda tensor: tensor.contiguous().pin_memory())

    def __len__(self) -> int:
        """B, the number of rows."""
        return len(self.tokens)

    def rows(self, some: slice) -> Batch:
        """These rows of the batch."""
        return self.each(lambda tensor: tensor[some])

    def equal_parts(self, parts: int) -> list[Batch]:
        """At most `parts` batches of one shape. The last one is padded with copied rows in which nothing is scored."""
        rows = ceil(len(self) / parts)
        return [self.rows(slice(start, start + rows))._padded(rows) for start in range(0, len(self), rows)]

    def _padded(self, rows: int) -> Batch:
        """The batch padded to this number of rows with copies of the last one, in which nothing is scored."""
        missing = rows - len(self)
        if not missing:
            return self
        longer = self.each(lambda tensor: torch.cat((tensor, tensor[-1:].expand(missing, *tensor.shape[1:]))))
        longer.targets[-missing:] = IGNORED
        return longer

    def each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """The batch with `change` applied to every tensor."""
        given = cast(Given, {name: change(cast(Tensor, value)) for name, value in self.given.items()})
        places = None if self.places is None else change(self.places)
        return Batch(change(self.tokens), change(self.targets), given, places)

    @classmethod
    def of(cls, examples: Examples) -> Batch:
        """A batch of examples, which have targets."""
        return cls(torch.from_numpy(examples.tokens), torch.from_numpy(examples.targets))

    @property
    def counts(self) -> Tensor:
        """(B, N): mask of the scored targets."""
        return self.targets != IGNORED

    def scored_of(self, known: NDArray[np.integer]) -> NDArray[np.int64]:
        """(S,): for each scored target, the value in `known` of its token. known: (B, T + 1), for the windows' tokens.
        Targets that are no token of the window get the value of its first."""
        scored = self.counts.cpu().numpy()
        if self.places is None:
            of_targets = known[:, 1:]
        else:
            of_targets = np.take_along_axis(known, np.maximum(self.places.cpu().numpy(), 0), axis=1)
        found: NDArray[np.int64] = of_targets[scored].astype(np.int64)
        return found

    def sizes_of(self, sizes: NDArray[np.integer]) -> NDArray[np.int64]:
        """(S,): bytes of text of each scored target, 0 if it is no token of the window. sizes: (B, T + 1), those of the
        windows' tokens."""
        found = self.scored_of(sizes)
        if self.places is None:
            return found
        return np.where((self.places >= 0)[self.counts].cpu().numpy(), found, 0)
