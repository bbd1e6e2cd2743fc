from __future__ import annotations

import random

from transformers import MistralConfig

from tests.zoo.hf.draws import gated_act, head_dim, rope, sizes, turned, window


def draw(rng: random.Random) -> MistralConfig:
    size, dim = sizes(rng), head_dim(rng)
    return MistralConfig(
        **size,
        head_dim=dim,
        hidden_act=gated_act(rng),
        sliding_window=window(rng),
        rms_norm_eps=rng.choice([1e-6, 1e-3]),
        rope_parameters=rope(rng, dim or turned(size)),
    )
