"""Batches for training and validation, and gradients of a batch, a few rows at a time (gradient accumulation).

    L(batch) = Σ_parts L(part),   each part's sums divided by the whole batch's number of scored targets

so that parts with different numbers of scored targets have the weights that they have in the whole. Parts may also be
computed by several processes, of which this has the case of one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from math import ceil
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ablate.data.corpus import Examples
from ablate.training.execution import Microbatch
from ablate.training.optimizers import Updates
from ablate.training.trained import HasState
from evals.costs.memory import is_out_of_memory
from store import AblateError
from zoo.loss import IGNORED, BatchShare
from zoo.model import Decoder
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


Stretches = Generator[list[Any]]
"""Training steps, in the stretches of `ablate.training.loop`."""
LOG = logging.getLogger(__name__)


class MicrobatchError(AblateError):
    """The model cannot be trained on parts of a batch."""


class ProcessGroup:
    """The processes that train one run together: here, this one alone. A larger group overrides the methods."""

    rank, size = 0, 1

    def share(self, rows: int) -> slice:
        """This process's rows of a batch."""
        return slice(0, rows)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace these tensors, of one dtype, by their sums over the group, except for shards, which are sums."""

    def whole(self, tensor: Tensor) -> Tensor:
        """The whole of a tensor of which each process may have a shard."""
        return tensor

    def trained(self, model: Decoder) -> Decoder:
        """The model that this process trains: the whole one, or its shards."""
        return model

    def state_of(self, optimizer: Updates) -> HasState:
        """The object that saves and loads the optimizer's state, unsharded."""
        return optimizer

    def together(self, stretches: Stretches, done: int, steps: int, scored: Callable[[int], bool]) -> Stretches:
        """The stretches from step `done` to `steps`. The whole model has its weights after those that end with a save,
        or with a step that is scored."""
        return stretches

    def decides_to_save(self, is_due: Callable[[], bool]) -> bool:
        """Whether to end a stretch with this step since all processes have to take part in saving its state."""
        return False

    def saves(self, is_due: bool) -> bool:
        """Whether to save the state after this stretch."""
        return is_due


ALONE = ProcessGroup()


@dataclass
class Accumulation:
    """`microbatch` as in `Execution`. couples_rows: why a batch cannot be split, if so. rows: current rows per pass.
    group: the processes whose gradients add up to those of a batch.

    Raises MicrobatchError if parts are requested and batches cannot be split.
    """

    microbatch: Microbatch | None = None
    couples_rows: str | None = None
    rows: int | None = None
    group: ProcessGroup = ALONE

    def __post_init__(self) -> None:
        in_parts = isinstance(self.microbatch, int) or self.group.size > 1
        if in_parts and self.couples_rows is not None:
            raise MicrobatchError(f"a batch cannot be split: {self.couples_rows}")
        if isinstance(self.microbatch, int):
            self.rows = self.microbatch

    def gradients(self, loss: Loss, batch: Batch, autocast: Callable[[], AbstractContextManager[object]]) -> Tensor:
        """Add gradients to those of the parameters, and return nats per scored target. Both are this process's share of
        the group's sums.

        May raise torch's out-of-memory errors, after which the gradients are invalid.
        """
        nats = []
        for part, given in self._parts(batch):
            with autocast():
                objective, of_part = loss(part.tokens, part.targets, **given, **part.given)
            objective.backward()
            nats.append(of_part.detach())
        return nats[0] if len(nats) == 1 else torch.stack(nats).sum()

    def compile(self, loss: Loss, batch: Batch, autocast: Callable[[], AbstractContextManager[object]]) -> None:
        """Run the forward pass of a part of the batch, whose result is not used, so that a compiled loss has a program
        for parts of this shape."""
        part, given = self._parts(batch)[0]
        with autocast():
            loss(part.tokens, part.targets, **given, **part.given)

    def halve(self, batch: Batch, error: RuntimeError | MemoryError) -> None:
        """Use fewer rows per pass from now on. Raises `error` if it is not about memory, or this is not possible."""
        rows = self.rows_of(batch)
        is_memory = isinstance(error, MemoryError) or is_out_of_memory(error)
        if self.microbatch != "auto" or self.couples_rows is not None or rows == 1 or not is_memory:
            raise error
        self.rows = largest_divisor(self._own(batch), rows // 2)
        LOG.info("out of memory with %d rows per pass: continuing with %d", rows, self.rows)

    def _parts(self, batch: Batch) -> list[tuple[Batch, dict[str, BatchShare]]]:
        """Parts of this process's rows, each with its share of the batch as an argument for the loss."""
        rows = self.rows_of(batch)
        if rows == len(batch):
            return [(batch, {})]
        told, share = {"part": BatchShare(batch.counts.sum(), rows / len(batch))}, self.group.share(len(batch))
        return [(batch.rows(slice(start, start + rows)), told) for start in range(share.start, share.stop, rows)]

    def rows_of(self, batch: Batch) -> int:
        """Rows of a batch per pass, for this process."""
        own = self._own(batch)
        return own if self.rows is None else largest_divisor(own, self.rows)

    def _own(self, batch: Batch) -> int:
        """Number of this process's rows."""
        return len(batch) // self.group.size


def largest_divisor(number: int, limit: int) -> int:
    """The largest divisor of at most `limit`: parts of one shape are compiled once."""
    return next(n for n in range(min(number, limit), 0, -1) if number % n == 0)
