from __future__ import annotations

import random

from transformers import FalconH1Config

from tests.zoo.hf.draws import any_act, flag, head_dim, rope, sizes, turned
from tests.zoo.hf.families.bamba import mamba


def draw(rng: random.Random) -> FalconH1Config:
    size = sizes(rng)
    state = mamba(rng, size["hidden_size"])
    dim = head_dim(rng) or turned(size)
    rotation = rope(rng, dim // 2 * 2)
    if rotation["rope_type"] in ("dynamic", "longrope"):
        # transformers in chunks is the reference then, and ignores the limits when it decodes token by token.
        del state["time_step_limit"]
    norm, attention_bias, mlp_bias = flag(rng), flag(rng), flag(rng)
    return FalconH1Config(
        **size,
        **state,
        head_dim=dim,
        mamba_d_ssm=rng.choice([None, state["mamba_expand"] * size["hidden_size"]]),
        projectors_bias=state["mamba_proj_bias"],
        mamba_rms_norm=norm,
        mamba_norm_before_gate=not norm,
        hidden_act=any_act(rng),
        rms_norm_eps=rng.choice([1e-6, 1e-3]),
        attention_bias=attention_bias,
        mlp_bias=mlp_bias,
        # A factor on the input of a projection is one on its weights, but not on its bias.
        attention_in_multiplier=1.0 if attention_bias else factor(rng),
        ssm_in_multiplier=1.0 if state["mamba_proj_bias"] else factor(rng),
        mlp_multipliers=[factor(rng), 1.0 if mlp_bias else factor(rng)],
        ssm_multipliers=rng.choice([None, [factor(rng) for _ in range(5)]]),
        attention_out_multiplier=factor(rng),
        ssm_out_multiplier=factor(rng),
        key_multiplier=factor(rng),
        embedding_multiplier=factor(rng),
        lm_head_multiplier=factor(rng),
        rope_parameters=rotation,
    )


def factor(rng: random.Random) -> float:
    return rng.choice([1.0, rng.uniform(0.2, 3.0)])
