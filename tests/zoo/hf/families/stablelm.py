from __future__ import annotations

import random

from transformers import StableLmConfig

from tests.zoo.hf.draws import WITH_FRACTION, flag, fraction, gated_act, rope, sizes, turned


def draw(rng: random.Random) -> StableLmConfig:
    general = sizes(rng)
    part = fraction(rng, turned(general))
    return StableLmConfig(
        **general,
        hidden_act=gated_act(rng),
        layer_norm_eps=rng.choice([1e-5, 1e-3]),
        use_qkv_bias=flag(rng),
        qk_layernorm=flag(rng),
        use_parallel_residual=flag(rng),
        rope_parameters=rope(rng, int(turned(general) * part), WITH_FRACTION, partial_rotary_factor=part),
    )
