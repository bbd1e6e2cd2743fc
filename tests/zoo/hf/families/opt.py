from __future__ import annotations

import random

from transformers import OPTConfig

from tests.zoo.hf.draws import act, flag


def draw(rng: random.Random) -> OPTConfig:
    heads = rng.choice([1, 2, 3, 5])
    return OPTConfig(
        vocab_size=rng.randrange(40, 80),
        hidden_size=heads * rng.choice([3, 4, 7]),
        num_hidden_layers=rng.randrange(1, 4),
        ffn_dim=rng.randrange(7, 50),
        max_position_embeddings=rng.choice([19, 64]),
        do_layer_norm_before=flag(rng),
        _remove_final_layer_norm=flag(rng),
        word_embed_proj_dim=rng.choice([None, 5, 30]),
        num_attention_heads=heads,
        activation_function=act(rng),
        dropout=rng.choice([0.0, 0.1]),
        attention_dropout=rng.choice([0.0, 0.1]),
        enable_bias=flag(rng),
        layer_norm_elementwise_affine=flag(rng),
        tie_word_embeddings=flag(rng),
    )
