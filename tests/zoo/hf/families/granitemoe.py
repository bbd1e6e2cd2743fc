from __future__ import annotations

import random
from typing import Any

from transformers import GraniteMoeConfig

from tests.zoo.hf.draws import flag, gated_act, rope, sizes, turned


def draw(rng: random.Random) -> GraniteMoeConfig:
    return GraniteMoeConfig(**settings(rng))


def settings(rng: random.Random) -> dict[str, Any]:
    size, count = sizes(rng), rng.choice([1, 3, 8])
    return {
        **size,
        "hidden_act": gated_act(rng),
        "attention_bias": flag(rng),
        "embedding_multiplier": rng.choice([1.0, 12, 3.7]),
        "logits_scaling": rng.choice([1.0, 16, 0.3]),
        "residual_multiplier": rng.choice([1.0, 0.22]),
        "attention_multiplier": rng.choice([1.0, 0.0078125, 0.3]),
        "num_local_experts": count,
        "num_experts_per_tok": rng.randrange(1, min(count, 3) + 1),
        "output_router_logits": flag(rng),
        "rope_parameters": rope(rng, turned(size)),
    }
