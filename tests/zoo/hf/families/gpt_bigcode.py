from __future__ import annotations

import random

from transformers import GPTBigCodeConfig

from tests.zoo.hf.draws import act, flag, sizes


def draw(rng: random.Random) -> GPTBigCodeConfig:
    size = sizes(rng)
    return GPTBigCodeConfig(
        vocab_size=size["vocab_size"],
        n_embd=size["hidden_size"],
        n_layer=size["num_hidden_layers"],
        n_head=size["num_attention_heads"],
        n_inner=rng.choice([None, 13]),
        n_positions=rng.choice([19, 64]),
        activation_function=act(rng),
        layer_norm_epsilon=rng.choice([1e-5, 1e-3]),
        multi_query=flag(rng),
        scale_attn_weights=flag(rng),
        tie_word_embeddings=size["tie_word_embeddings"],
        bos_token_id=None,
        eos_token_id=None,
    )
