from __future__ import annotations

import random
from typing import Any

from transformers import GraniteSWAConfig

from tests.zoo.hf.draws import flag, gated_act, layer_types, rope, sizes, turned


def draw(rng: random.Random) -> GraniteSWAConfig:
    size = sizes(rng)
    return GraniteSWAConfig(
        **size,
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        mlp_bias=flag(rng),
        embedding_multiplier=rng.choice([1.0, 12, 3.7]),
        logits_scaling=rng.choice([1.0, 16, 0.3]),
        residual_multiplier=rng.choice([1.0, 0.22]),
        attention_multiplier=rng.choice([1.0, 0.0078125, 0.3]),
        **layers(rng, size["num_hidden_layers"]),
        # By kind of layer transformers has one RoPE for each base; in chunks its cache would lose a window's tokens.
        rope_parameters=rope(rng, turned(size), ("default", "linear", "llama3")),
    )


def layers(rng: random.Random, count: int) -> dict[str, Any]:
    return {
        "sliding_window": rng.choice([1, 5, 30]),
        "layer_types": layer_types(rng, count),
        "layer_rope_theta": rng.choice([None, [rng.choice([0, 100, 1e4]) for _ in range(count)]]),
    }
