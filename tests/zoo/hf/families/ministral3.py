from __future__ import annotations

import random

from transformers import Ministral3Config

from tests.zoo.hf.draws import gated_act, head_dim, rope, sizes, turned, window


def draw(rng: random.Random) -> Ministral3Config:
    size = sizes(rng)
    dim = head_dim(rng) or turned(size)
    parameters = rope(rng, dim, ("default", "linear", "llama3", "yarn"))
    grown = {
        "llama_4_scaling_beta": rng.choice([0.0, 0.1, 0.7]),
        "original_max_position_embeddings": rng.choice([4, 9]),
    }
    return Ministral3Config(
        **size,
        head_dim=dim,
        hidden_act=gated_act(rng),
        sliding_window=window(rng),
        rope_parameters={**parameters, **grown},
    )
