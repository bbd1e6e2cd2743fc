from __future__ import annotations

import random

from transformers import GPTJConfig

from tests.zoo.hf.draws import act, flag


def draw(rng: random.Random) -> GPTJConfig:
    heads, head_dim = rng.choice([1, 2, 3, 5]), rng.choice([4, 7, 10])
    return GPTJConfig(
        vocab_size=rng.randrange(40, 80),
        n_positions=rng.choice([19, 64]),
        n_embd=heads * head_dim,
        n_layer=rng.randrange(1, 4),
        n_head=heads,
        rotary_dim=rng.choice([2, 4, head_dim // 2 * 2]),
        n_inner=rng.choice([None, 11, 50]),
        activation_function=act(rng),
        attn_pdrop=rng.choice([0.0, 0.1]),
        embd_pdrop=rng.choice([0.0, 0.1]),
        resid_pdrop=rng.choice([0.0, 0.1]),
        layer_norm_epsilon=rng.choice([1e-5, 1e-3]),
        tie_word_embeddings=flag(rng),
        bos_token_id=None,
        eos_token_id=None,
    )
