from __future__ import annotations

import random

from transformers import InternLM3Config, IQuestCoderConfig

from tests.zoo.hf.draws import flag, gated_act, head_dim, rope, sizes, turned


def draw(rng: random.Random) -> InternLM3Config | IQuestCoderConfig:
    size, biased = sizes(rng), flag(rng)
    dim = head_dim(rng) or turned(size)
    return rng.choice([InternLM3Config, IQuestCoderConfig])(
        **size,
        head_dim=dim,
        hidden_act=gated_act(rng),
        attention_bias=biased,
        mlp_bias=biased,
        rope_parameters=rope(rng, dim),
    )
