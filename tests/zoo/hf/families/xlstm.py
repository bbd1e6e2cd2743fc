from __future__ import annotations

import random

from transformers import xLSTMConfig

from tests.zoo.hf.draws import sizes


def draw(rng: random.Random) -> xLSTMConfig:
    """Of widths that are multiples of 64, as transformers' cache is."""
    size = sizes(rng)
    return xLSTMConfig(
        vocab_size=size["vocab_size"],
        hidden_size=64,
        num_hidden_layers=size["num_hidden_layers"],
        num_heads=rng.choice([1, 2, 4]),
        qk_dim_factor=rng.choice([1.0, 2.0]),
        v_dim_factor=rng.choice([1.0, 2.0]),
        ffn_proj_factor=rng.choice([1.3, 2.667]),
        ffn_round_up_to_multiple_of=rng.choice([1, 8]),
        chunk_size=rng.choice([4, 64]),
        gate_soft_cap=rng.choice([3.0, 15.0]),
        output_logit_soft_cap=rng.choice([2.0, 30.0]),
        norm_eps=rng.choice([1e-3, 1e-2]),  # less would scale the rounding of a head's small output up
    )
