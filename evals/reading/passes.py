"""Forward passes of an evaluation: their mode, their batch size, and the check that the model is causal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeVar

import torch
from torch import nn

from evals.found import count
from zoo.model import Decoder
from zoo.spec import ModelSpec, depends_on_length


class NotCausalError(ValueError):
    """A request is meaningless for a model that is not causal."""


def obstacle(spec: ModelSpec) -> str | None:
    """Reason why a model can neither give a text's likelihood nor continue it; None if it can."""
    if spec.visible == "all":
        return "is an encoder"
    return None if spec.encoder is None else "has an encoder"


def check_causal(spec: ModelSpec) -> None:
    """Raise NotCausalError for a model that is not causal."""
    found = obstacle(spec)
    if found is not None:
        raise NotCausalError(f"only causal models can be evaluated, but this one {found}")


@contextmanager
def in_evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Switch off dropout, and changes that forward passes make in training, such as those of router biases; the
    previous mode is restored afterwards."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; the previous mode is restored afterwards."""
    with in_evaluation_mode(model), torch.inference_mode():
        yield


Rows = int | Literal["auto"]
Item = TypeVar("Item")
Answer = TypeVar("Answer")

MOST_TOKENS = 8192
"""Maximum number of tokens per pass; more do not make it faster."""
MOST_LOGITS = 2**28
"""Maximum number of logits of a pass that scores every token: 1 GiB in float32."""


def alike(model: Decoder, items: Sequence[Item], length: Callable[[Item], int]) -> list[list[int]]:
    """Indices of the items, in groups that a model may read in one pass: a single group, unless the model's computation
    depends on the length of its rows. Then each group has items of one length, so that none depends on the others."""
    if not depends_on_length(model.spec):
        return [list(range(len(items)))]
    places: dict[int, list[int]] = {}
    for place, item in enumerate(items):
        places.setdefault(length(item), []).append(place)
    return list(places.values())


class Batches:
    """Batches of a given number of rows, or `auto`: as many rows as have several thousand tokens together.

    If an `auto` batch does not fit into GPU memory, batches are halved from then on. A given number is never changed.
    """

    def __init__(self, rows: Rows, vocab_size: int) -> None:
        self._rows = None if rows == "auto" else rows
        self._tokens = max(1, min(MOST_TOKENS, MOST_LOGITS // vocab_size))

    def rows(self, longest: int) -> int:
        """Number of rows of up to `longest` tokens in a batch."""
        return self._rows or max(1, self._tokens // max(1, longest))

    def run(
        self, items: Sequence[Item], length: Callable[[Item], int], work: Callable[[list[Item]], list[Answer]]
    ) -> Iterator[tuple[Item, Answer]]:
        """Yield every item with its answer, the longest items first, so that batches contain little padding."""
        items = sorted(items, key=length, reverse=True)
        first = 0
        while first < len(items):
            longest = length(items[first])
            chunk = items[first : first + self.rows(longest)]
            try:
                answers = work(chunk)
            except torch.OutOfMemoryError:
                if self._rows is not None or len(chunk) == 1:
                    raise
                self._tokens = len(chunk) * longest // 2
                continue
            yield from zip(chunk, answers, strict=True)
            first += len(chunk)
            count(first, len(items))
