from __future__ import annotations

import random

from transformers import GPT2Config

from tests.zoo.hf.draws import act, flag


def draw(rng: random.Random) -> GPT2Config:
    heads = rng.choice([1, 2, 3, 5])
    return GPT2Config(
        vocab_size=rng.randrange(40, 80),
        n_positions=rng.choice([19, 64]),
        n_embd=heads * rng.choice([3, 4, 7]),
        n_layer=rng.randrange(1, 4),
        n_head=heads,
        n_inner=rng.choice([None, 11, 50]),
        activation_function=act(rng),
        attn_pdrop=rng.choice([0.0, 0.1]),
        embd_pdrop=rng.choice([0.0, 0.1]),
        resid_pdrop=rng.choice([0.0, 0.1]),
        layer_norm_epsilon=rng.choice([1e-5, 1e-3]),
        scale_attn_weights=flag(rng),
        scale_attn_by_inverse_layer_idx=flag(rng),
        reorder_and_upcast_attn=flag(rng),
        tie_word_embeddings=flag(rng),
        bos_token_id=None,
        eos_token_id=None,
    )
