from __future__ import annotations

import random

from transformers import LlamaConfig

from tests.zoo.hf.draws import flag, gated_act, head_dim, rope, sizes, turned


def draw(rng: random.Random) -> LlamaConfig:
    size, dim = sizes(rng), head_dim(rng)
    return LlamaConfig(
        **size,
        head_dim=dim,
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        mlp_bias=flag(rng),
        rms_norm_eps=rng.choice([1e-6, 1e-3]),
        rope_parameters=rope(rng, dim or turned(size)),
    )
