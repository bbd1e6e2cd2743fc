"""Named internals of a forward pass, for probes: no measuring code lives in a model.

    with zoo.taps(model, "*.ffn.load") as seen:
        model(tokens)
    seen["blocks.0.ffn.load"]      # a list: one tensor per forward pass

Layers offer what can be seen with `step.tap`; the block's name is put before it. There are

- `blocks.<i>.stream`, the residual stream that leaves a block: (B, T, D), or (B, T, n, D) where there are n of them;
- `blocks.<i>.mixer.max_logit` and `blocks.<i>.mixer.entropy` of attention, for each head (see `zoo.attend`): (H,);
- `blocks.<i>.mixer.weights`, how much each query attends to each key: (B, H, T, S), as large as that is;
- `blocks.<i>.ffn.load`, the share of the assignments that each expert got: (E,);
- `borders`, where chunks of tokens begin, in a model that has them: (B, T);
- `blocks.<i>.routed`, the tokens that a block with a router runs on: (B, T); `turns.<r>.routed`, those that turn r of a
  loop with routers runs on, of the M that the turn before it left: (B, M);
- `log_z`, log Σ exp of each token's final logits: (B, T);

and the same of the modules that look ahead, under their own names for `blocks.<i>`. What nobody asks for is not
computed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from zoo.model import Decoder
from zoo.site import Show, Tap


@contextmanager
def listening(model: Decoder, tap: Tap) -> Iterator[None]:
    """Let `tap` be told of what the model's layers can show while the block runs, and nobody else."""
    before, model.recorder = model.recorder, tap
    try:
        yield
    finally:
        model.recorder = before


@contextmanager
def taps(model: Decoder, *patterns: str) -> Iterator[dict[str, list[Tensor]]]:
    """Record what the model's layers show while the block runs: everything, or the names that match one of `patterns`
    (`*` stands for any text). Tensors are detached."""
    seen: dict[str, list[Tensor]] = defaultdict(list)

    @torch.no_grad()
    def record(name: str, show: Show) -> None:
        if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns):
            seen[name].append(show().detach())

    with listening(model, record):
        yield seen
