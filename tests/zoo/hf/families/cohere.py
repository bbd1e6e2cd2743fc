from __future__ import annotations

import random

from transformers import CohereConfig

from tests.zoo.hf.draws import flag, gated_act, rope, sizes, turned


def draw(rng: random.Random) -> CohereConfig:
    general = sizes(rng)
    return CohereConfig(
        **general,
        hidden_act=gated_act(rng),
        layer_norm_eps=rng.choice([1e-5, 1e-3]),
        logit_scale=rng.choice([0.0625, 1.0, 1.7]),
        attention_bias=flag(rng),
        use_qk_norm=flag(rng),
        rope_parameters=rope(rng, turned(general)),
    )
