from __future__ import annotations

import random

from transformers import BailingHybridConfig

from tests.zoo.hf.draws import flag, rope, sizes
from tests.zoo.hf.families.kimi_linear import experts, kinds, latent


def draw(rng: random.Random) -> BailingHybridConfig:
    size, attention = sizes(rng), latent(rng)
    del size["max_position_embeddings"]
    return BailingHybridConfig(
        **size | {"num_key_value_heads": size["num_attention_heads"]},
        **attention,
        **experts(rng),
        head_dim=rng.choice([4, 7]),
        short_conv_kernel_size=rng.choice([2, 3, 4]),
        kda_safe_gate=flag(rng),
        kda_lower_bound=rng.choice([-5.0, -1.5]),
        rope_parameters=rope(rng, attention["qk_rope_head_dim"], ("default", "linear", "llama3", "yarn")),
        **kinds(rng, size["num_hidden_layers"]),
    )
