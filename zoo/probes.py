"""Named internals of a forward pass, for probes. Models contain no measuring code.

    with zoo.taps(model, "*.ffn.load") as seen:
        model(tokens)
    seen["blocks.0.ffn.load"]      # a list: one tensor per forward pass

Layers offer internals with `step.tap`, which prepends the block's name. They are

- `blocks.<i>.stream`, the residual stream after a block: (B, T, D), or (B, T, n, D) with n streams;
- `blocks.<i>.mixer.max_logit` and `blocks.<i>.mixer.entropy` of attention, for each head (see `zoo.attend`): (H,);
- `blocks.<i>.mixer.weights`, the attention weights: (B, H, T, S), which may be large;
- `blocks.<i>.ffn.load`, each expert's share of the assignments: (E,);
- `borders`, whether a token begins a chunk, in a model with `chunks`: (B, T);
- `blocks.<i>.routed`, whether a block with a router runs on each token: (B, T); `turns.<r>.routed`, the same for turn r
  of a loop with routers, over the M tokens that the previous turn kept: (B, M);
- `log_z`, log Σ exp of each token's final logits: (B, T).

Modules of multi-token prediction offer the same, with their own names in place of `blocks.<i>`. Internals that no probe
requests are not computed.
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
    """Inside the block, call `tap` with each internal that the model's layers offer, in place of any other tap."""
    before, model.recorder = model.recorder, tap
    try:
        yield
    finally:
        model.recorder = before


@contextmanager
def taps(model: Decoder, *patterns: str) -> Iterator[dict[str, list[Tensor]]]:
    """Record the internals that the model's layers offer inside the block: all, or those whose names match one of
    `patterns` (`*` matches any text). Tensors are detached."""
    seen: dict[str, list[Tensor]] = defaultdict(list)

    @torch.no_grad()
    def record(name: str, show: Show) -> None:
        if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns):
            seen[name].append(show().detach())

    with listening(model, record):
        yield seen
