from __future__ import annotations

import random

from transformers import NanoChatConfig

from tests.zoo.hf.draws import act, flag, rope, sizes, turned


def draw(rng: random.Random) -> NanoChatConfig:
    size = sizes(rng)
    return NanoChatConfig(
        **size,
        hidden_act=act(rng),
        rms_norm_eps=rng.choice([1e-6, 1e-3]),
        attention_bias=flag(rng),
        final_logit_softcapping=rng.choice([None, 2.0, 15.0]),
        rope_parameters=rope(rng, turned(size)),
    )
