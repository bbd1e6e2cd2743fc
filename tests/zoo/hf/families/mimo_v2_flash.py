from __future__ import annotations

import random

from transformers import MiMoV2FlashConfig

from tests.zoo.hf.draws import flag, gated_act, layer_types, sizes
from tests.zoo.hf.families.glm4_moe import experts
from tests.zoo.hf.families.laguna import parameters


def draw(rng: random.Random) -> MiMoV2FlashConfig:
    size, dim = sizes(rng), rng.choice([4, 8, 14])
    layers = size["num_hidden_layers"]
    size["num_attention_heads"] = 2 * size["num_key_value_heads"] * rng.choice([1, 2])
    routed = {key: value for key, value in experts(rng, layers).items() if key not in UNKNOWN}
    return MiMoV2FlashConfig(
        **size,
        **routed,
        head_dim=dim,
        v_head_dim=rng.choice([3, 8]),
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        attention_value_scale=rng.choice([None, 0.707]),
        mlp_layer_types=[rng.choice(["dense", "sparse"]) for _ in range(layers)],
        sliding_window=rng.choice([1, 4, 30]),
        layer_types=layer_types(rng, layers),
        rope_parameters={kind: parameters(rng, dim) for kind in ("sliding_attention", "full_attention")},
    )


UNKNOWN = ("n_shared_experts", "first_k_dense_replace")
