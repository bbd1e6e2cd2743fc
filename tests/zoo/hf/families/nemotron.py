from __future__ import annotations

import random

from transformers import NemotronConfig

from tests.zoo.hf.draws import act, flag, partial_rope, sizes, turned


def draw(rng: random.Random) -> NemotronConfig:
    general = sizes(rng)
    width = rng.choice([None, 4, 7, 8])
    return NemotronConfig(
        **general,
        head_dim=width,
        hidden_act=act(rng),
        norm_eps=rng.choice([1e-5, 1e-3]),
        attention_bias=flag(rng),
        mlp_bias=flag(rng),
        rope_parameters=partial_rope(rng, width or turned(general)),
    )
