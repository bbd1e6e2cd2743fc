from __future__ import annotations

import random
from typing import Any

from transformers import Gemma2Config

from tests.zoo.hf.draws import flag, gated_act, layer_types, rope, sizes


def draw(rng: random.Random) -> Gemma2Config:
    dim = rng.choice([2, 8, 14])
    return Gemma2Config(**shared(rng), head_dim=dim, rope_parameters=rope(rng, dim))


def shared(rng: random.Random) -> dict[str, Any]:
    size = sizes(rng)
    return {
        **size,
        "hidden_activation": gated_act(rng),
        "attention_bias": flag(rng),
        "query_pre_attn_scalar": rng.choice([3, 24, 256]),
        "final_logit_softcapping": rng.choice([None, 2.0, 30.0]),
        "attn_logit_softcapping": rng.choice([None, 1.5, 50.0]),
        "sliding_window": rng.choice([1, 4, 30]),
        "layer_types": rng.choice([None, layer_types(rng, size["num_hidden_layers"])]),
    }
