from __future__ import annotations

import random

from transformers import BloomConfig

from tests.zoo.hf.draws import flag


def draw(rng: random.Random) -> BloomConfig:
    heads = rng.choice([1, 2, 3, 5, 12])
    return BloomConfig(
        vocab_size=rng.randrange(40, 80),
        hidden_size=heads * rng.choice([3, 4, 7]),
        n_layer=rng.randrange(1, 4),
        n_head=heads,
        layer_norm_epsilon=rng.choice([1e-5, 1e-3]),
        apply_residual_connection_post_layernorm=flag(rng),
        hidden_dropout=rng.choice([0.0, 0.1]),
        attention_dropout=rng.choice([0.0, 0.1]),
        tie_word_embeddings=flag(rng),
    )
