from __future__ import annotations

import random

from transformers import NemotronHConfig

from tests.zoo.hf.draws import act, any_act, flag, sizes
from tests.zoo.hf.families.glm4_moe import experts


def draw(rng: random.Random) -> NemotronHConfig:
    size, heads = sizes(rng), rng.choice([2, 4, 6])
    of_experts, layers = experts(rng, 1), size.pop("num_hidden_layers")
    del of_experts["first_k_dense_replace"], of_experts["n_shared_experts"]
    latent, biased = rng.choice([None, 5]), flag(rng)
    kinds = [rng.choice(["linear_attention", "full_attention", "mlp", "moe"]) for _ in range(layers + 1)]
    return NemotronHConfig(
        **size,
        **of_experts,
        layers_block_type=["full_attention", *kinds],
        head_dim=rng.choice([2, 5, 8]),
        layer_norm_epsilon=rng.choice([1e-5, 1e-3]),
        mlp_hidden_act=act(rng),
        mlp_bias=biased and latent is None,
        moe_latent_size=latent,
        moe_shared_expert_intermediate_size=rng.randrange(3, 30),
        mamba_num_heads=heads,
        mamba_head_dim=rng.choice([3, 4]),
        n_groups=rng.choice([groups for groups in range(1, heads + 1) if heads % groups == 0]),
        ssm_state_size=rng.randrange(3, 9),
        mamba_hidden_act=any_act(rng),
        conv_kernel=rng.choice([2, 3, 4]),
        use_conv_bias=flag(rng),
        use_bias=flag(rng),
        chunk_size=rng.choice([4, 256]),
        time_step_min=rng.choice([0.001, 0.7]),
    )
