from __future__ import annotations

import random

from transformers import CodeGenConfig

from tests.zoo.hf.draws import act, flag


def draw(rng: random.Random) -> CodeGenConfig:
    dim = rng.choice([4, 6, 10])
    return CodeGenConfig(
        vocab_size=rng.randrange(40, 80),
        n_embd=4 * dim,
        n_layer=rng.randrange(1, 5),
        n_head=4,
        n_inner=rng.choice([None, 13]),
        n_positions=64,
        n_ctx=64,
        rotary_dim=rng.randrange(2, dim + 1, 2),
        activation_function=act(rng),
        layer_norm_epsilon=rng.choice([1e-5, 1e-3]),
        tie_word_embeddings=flag(rng),
        bos_token_id=None,
        eos_token_id=None,
    )
