from __future__ import annotations

import random
from typing import Any

from transformers import FalconConfig

from tests.zoo.hf.draws import act, flag, rope, sizes, turned

LAYOUTS: list[dict[str, Any]] = [
    {"new_decoder_architecture": True, "num_ln_in_parallel_attn": None},
    {"new_decoder_architecture": True, "num_ln_in_parallel_attn": 1},
    {"multi_query": True, "parallel_attn": True},
    {"multi_query": True, "parallel_attn": False},
    {"multi_query": False, "parallel_attn": True},
    {"multi_query": False, "parallel_attn": False},
]


def draw(rng: random.Random) -> FalconConfig:
    general = sizes(rng)
    width, kv_heads = general.pop("intermediate_size"), general.pop("num_key_value_heads")
    layout = rng.choice(LAYOUTS)
    if "new_decoder_architecture" in layout:
        layout = layout | {"num_kv_heads": kv_heads}
    return FalconConfig(
        **general,
        **layout,
        ffn_hidden_size=width,
        alibi=flag(rng),
        bias=flag(rng),
        activation=act(rng),
        layer_norm_epsilon=rng.choice([1e-5, 1e-3]),
        rope_parameters=rope(rng, turned(general)),
    )
