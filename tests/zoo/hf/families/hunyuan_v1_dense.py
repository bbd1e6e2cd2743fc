from __future__ import annotations

import random
from typing import Any

from transformers import HunYuanDenseV1Config

from tests.zoo.hf.draws import flag, gated_act, rope, sizes


def draw(rng: random.Random) -> HunYuanDenseV1Config:
    return HunYuanDenseV1Config(**attention(rng))


def attention(rng: random.Random) -> dict[str, Any]:
    dim = rng.choice([4, 8, 14])
    alpha = {"rope_type": "dynamic", "rope_theta": 100.0, "alpha": rng.choice([1.5, 1000.0]), "factor": 1.0}
    return {
        **sizes(rng),
        "head_dim": dim,
        "hidden_act": gated_act(rng),
        "attention_bias": flag(rng),
        "rms_norm_eps": rng.choice([1e-6, 1e-3]),
        "rope_parameters": rng.choice([alpha, rope(rng, dim)]),
    }
