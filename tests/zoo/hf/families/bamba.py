from __future__ import annotations

import random
from typing import Any

from transformers import BambaConfig

from tests.zoo.hf.draws import any_act, flag, rope, sizes, turned


def draw(rng: random.Random) -> BambaConfig:
    size = sizes(rng)
    size["num_hidden_layers"] = max(2, size["num_hidden_layers"])
    features = turned(size) // 2 * 2
    return BambaConfig(
        **size,
        **mamba(rng, size["hidden_size"]),
        hidden_act=any_act(rng),
        rms_norm_eps=rng.choice([1e-6, 1e-3]),
        attention_bias=flag(rng),
        mlp_bias=flag(rng),
        # The first layer attends: transformers asks it how long the cache is.
        attn_layer_indices=[0, *(i for i in range(1, size["num_hidden_layers"] - 1) if flag(rng))],
        # Without a scaling by length: transformers counts a chunk's positions from 0, whatever the cache holds.
        rope_parameters=rope(
            rng,
            count := rng.randrange(2, features + 1, 2),
            ("default", "linear", "llama3"),
            partial_rotary_factor=count / turned(size),
        ),
    )


def mamba(rng: random.Random, hidden_size: int) -> dict[str, Any]:
    expand, groups = rng.choice([1, 2]), rng.choice([1, 2])
    heads = rng.choice([n for n in (2, 4) if expand * hidden_size % n == 0])
    return {
        "mamba_expand": expand,
        "mamba_n_heads": heads,
        "mamba_d_head": rng.choice(["auto", expand * hidden_size // heads]),
        "mamba_n_groups": groups,
        "mamba_d_state": rng.randrange(3, 9),
        "mamba_d_conv": rng.choice([2, 3, 4]),
        "mamba_chunk_size": rng.choice([4, 8, 256]),
        "mamba_conv_bias": flag(rng),
        "mamba_proj_bias": flag(rng),
        "time_step_limit": rng.choice([(0.0, float("inf")), (0.01, 1.5)]),
    }
