from __future__ import annotations

import random
from typing import Any

from transformers import CwmConfig, MinistralConfig

from tests.zoo.hf.draws import gated_act, head_dim, layer_types, rope, sizes, turned


def draw(rng: random.Random) -> Any:
    size = sizes(rng)
    dim = head_dim(rng) or turned(size)
    return rng.choice([CwmConfig, MinistralConfig])(
        **size | {"bos_token_id": 1},  # CWM wants a number
        head_dim=dim,
        hidden_act=gated_act(rng),
        sliding_window=rng.choice([2, 5, 30]),
        layer_types=layer_types(rng, size["num_hidden_layers"]),
        rope_parameters=rope(rng, dim),
    )
