from __future__ import annotations

import random

from transformers import MellumConfig

from tests.zoo.hf.draws import flag, gated_act, layer_types, rope, sizes


def draw(rng: random.Random) -> MellumConfig:
    size, dim, count = sizes(rng), rng.choice([2, 8, 14]), rng.choice([1, 3, 8])
    layers = size["num_hidden_layers"]
    # Of YaRN by kind of layer, transformers looks for `truncate` at the wrong place.
    positions = {kind: rope(rng, dim) for kind in ("sliding_attention", "full_attention")}
    for each in positions.values():
        each.pop("truncate", None)
    kinds = [rng.choice(["dense", "sparse"]) for _ in range(layers)]
    return MellumConfig(
        **size,
        head_dim=dim,
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        num_local_experts=count,
        num_experts_per_tok=rng.randrange(1, min(count, 3) + 1),
        moe_intermediate_size=rng.randrange(5, 20),
        norm_topk_prob=flag(rng),
        output_router_logits="sparse" in kinds and flag(rng),
        mlp_layer_types=kinds,
        sliding_window=rng.choice([1, 4, 30]),
        layer_types=layer_types(rng, layers),
        rope_parameters=positions,
    )
