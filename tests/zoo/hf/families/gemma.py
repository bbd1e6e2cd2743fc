from __future__ import annotations

import random

from transformers import GemmaConfig

from tests.zoo.hf.draws import flag, gated_act, rope, sizes


def draw(rng: random.Random) -> GemmaConfig:
    dim = rng.choice([2, 8, 14])
    return GemmaConfig(
        **sizes(rng),
        head_dim=dim,
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        rms_norm_eps=rng.choice([1e-6, 1e-3]),
        rope_parameters=rope(rng, dim),
    )
