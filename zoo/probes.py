"""Named internals of a forward pass, for probes: no measuring code lives in a model.

    with zoo.taps(model) as seen:
        model(tokens)
    seen["blocks.0.ffn.load"]      # a list: one tensor per forward pass

Layers name what they show with `step.tap`; the block's name is put before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from zoo.model import Decoder


@contextmanager
def taps(model: Decoder) -> Iterator[dict[str, list[Tensor]]]:
    """Record what the model's layers show while the block runs. Tensors are detached."""
    seen: dict[str, list[Tensor]] = defaultdict(list)
    model.recorder = lambda name, value: seen[name].append(value.detach())
    try:
        yield seen
    finally:
        model.recorder = None
