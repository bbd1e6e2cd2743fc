from __future__ import annotations

import random

from transformers import PersimmonConfig

from tests.zoo.hf.draws import act, flag, sizes, turned
from tests.zoo.hf.families.phi import whole_pairs


def draw(rng: random.Random) -> PersimmonConfig:
    size = sizes(rng)
    del size["num_key_value_heads"]
    return PersimmonConfig(
        **size,
        hidden_act=act(rng),
        layer_norm_eps=rng.choice([1e-5, 1e-3]),
        qk_layernorm=flag(rng),
        rope_parameters=whole_pairs(rng, turned(size)),
    )
