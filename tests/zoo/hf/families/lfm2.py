from __future__ import annotations

import random
from typing import Any

from transformers import Lfm2Config

from tests.zoo.hf.draws import flag, rope, sizes, turned


def draw(rng: random.Random) -> Lfm2Config:
    size = sizes(rng)
    return Lfm2Config(
        **size,
        **operators(rng, size["num_hidden_layers"]),
        block_multiple_of=rng.choice([1, 8]),
        block_ffn_dim_multiplier=rng.choice([1.0, 1.3]),
        block_auto_adjust_ff_dim=flag(rng),
        rope_parameters=rope(rng, turned(size), KINDS),
    )


KINDS = ("default", "linear", "llama3", "yarn")


def operators(rng: random.Random, layers: int) -> dict[str, Any]:
    """The first layer attends: transformers asks it how long the cache is."""
    return {
        "norm_eps": rng.choice([1e-5, 1e-3]),
        "conv_bias": flag(rng),
        "conv_L_cache": rng.choice([2, 3, 4]),
        "layer_types": ["full_attention", *(rng.choice(["full_attention", "conv"]) for _ in range(layers - 1))],
    }
