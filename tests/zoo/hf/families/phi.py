from __future__ import annotations

import random
from typing import Any

from transformers import PhiConfig

from tests.zoo.hf.draws import act, flag, partial_rope, sizes, turned


def draw(rng: random.Random) -> PhiConfig:
    size = sizes(rng)
    return PhiConfig(
        **size,
        hidden_act=act(rng),
        layer_norm_eps=rng.choice([1e-5, 1e-3]),
        qk_layernorm=flag(rng),
        resid_pdrop=rng.choice([0.0, 0.1]),
        embd_pdrop=rng.choice([0.0, 0.1]),
        rope_parameters=whole_pairs(rng, turned(size)),
    )


def whole_pairs(rng: random.Random, dim: int) -> dict[str, Any]:
    """Half a pair cannot be turned."""
    drawn = partial_rope(rng, dim)
    while int(dim * drawn["partial_rotary_factor"]) % 2:
        drawn = partial_rope(rng, dim)
    return drawn
