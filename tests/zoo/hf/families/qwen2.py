from __future__ import annotations

import random
from typing import Any

from transformers import Qwen2Config

from tests.zoo.hf.draws import flag, gated_act, layer_types, rope, sizes, turned


def draw(rng: random.Random) -> Qwen2Config:
    size = sizes(rng)
    return Qwen2Config(**size, **windows(rng, size), hidden_act=gated_act(rng), rope_parameters=rope(rng, turned(size)))


def windows(rng: random.Random, size: dict[str, Any]) -> dict[str, Any]:
    """Settings of sliding windows, chosen by rule or by list."""
    ruled = {"max_window_layers": rng.randrange(0, size["num_hidden_layers"] + 1)}
    listed = {"layer_types": layer_types(rng, size["num_hidden_layers"])}
    return {
        "use_sliding_window": flag(rng) or "layer_types" in listed,
        "sliding_window": rng.choice([1, 4, 30]),
        **rng.choice([ruled, listed]),
    }
