from __future__ import annotations

import random

from transformers.models.qwen3_5 import Qwen3_5TextConfig

from tests.zoo.hf.draws import any_act, flag, head_dim, partial_rope, sizes, turned
from tests.zoo.hf.families.qwen3_next import linear_layers


def draw(rng: random.Random) -> Qwen3_5TextConfig:
    size, k_heads = sizes(rng), rng.choice([1, 2, 3])
    dim, layers = head_dim(rng) or turned(size), size["num_hidden_layers"]
    axes = rng.choice([{}, {"mrope_interleaved": True, "mrope_section": [1, 0, 0]}])
    return Qwen3_5TextConfig(
        **size,
        head_dim=dim,
        rope_parameters={**partial_rope(rng, dim), **axes},
        rms_norm_eps=rng.choice([1e-6, 1e-3]),
        **linear_layers(rng, layers, k_heads),
        attention_bias=flag(rng),
        hidden_act=any_act(rng),
    )
