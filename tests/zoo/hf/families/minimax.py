from __future__ import annotations

import random

from transformers import MiniMaxConfig

from tests.zoo.hf.draws import any_act, flag, head_dim, rope, sizes, turned, window


def draw(rng: random.Random) -> MiniMaxConfig:
    size, count = sizes(rng), rng.choice([1, 3, 8])
    dim, alpha, beta = head_dim(rng) or turned(size), rng.choice([1.0, 3.5]), rng.choice([1.0, 0.7])
    factors = {f"{kind}_alpha_factor": alpha for kind in ("full_attn", "linear_attn", "mlp")}
    factors |= {f"{kind}_beta_factor": beta for kind in ("full_attn", "linear_attn", "mlp")}
    kinds = [rng.choice(["full_attention", "linear_attention"]) for _ in range(size["num_hidden_layers"] - 1)]
    return MiniMaxConfig(
        **size,
        **factors,
        head_dim=dim,
        hidden_act=any_act(rng),
        sliding_window=window(rng),
        num_local_experts=count,
        num_experts_per_tok=rng.randrange(1, min(count, 3) + 1),
        output_router_logits=flag(rng),
        block_size=rng.choice([4, 256]),
        layer_types=["full_attention", *kinds],
        # Where transformers in chunks is the reference, it would want a cache of its own kind.
        rope_parameters=rope(rng, dim, ("default", "linear", "llama3", "yarn")),
    )
