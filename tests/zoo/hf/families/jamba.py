from __future__ import annotations

import random

from transformers import JambaConfig

from tests.zoo.hf.draws import any_act, flag, sizes


def draw(rng: random.Random) -> JambaConfig:
    size, count = sizes(rng), rng.choice([1, 3, 8])
    attends, sparse = rng.choice([1, 2, 3]), rng.choice([1, 2])
    return JambaConfig(
        **size,
        hidden_act=any_act(rng),
        rms_norm_eps=rng.choice([1e-6, 1e-3]),
        num_experts=count,
        num_experts_per_tok=rng.randrange(1, min(count, 3) + 1),
        output_router_logits=count > 1 and sparse == 1 and flag(rng),
        # The first layer attends: without any, transformers does not know how long a text is.
        attn_layer_period=attends,
        attn_layer_offset=0,
        expert_layer_period=sparse,
        expert_layer_offset=rng.randrange(sparse),
        mamba_d_state=rng.randrange(3, 9),
        mamba_d_conv=rng.choice([2, 3, 4]),
        mamba_expand=rng.choice([1, 2]),
        mamba_dt_rank=rng.choice(["auto", 3]),
        mamba_conv_bias=flag(rng),
        mamba_proj_bias=flag(rng),
    )
