from __future__ import annotations

import random

from transformers import MptConfig

from tests.zoo.hf.draws import sizes


def draw(rng: random.Random) -> MptConfig:
    size = sizes(rng)
    return MptConfig(
        vocab_size=size["vocab_size"],
        d_model=size["hidden_size"],
        n_layers=size["num_hidden_layers"],
        n_heads=rng.choice([n for n in (1, 2, 3, 4, 6) if size["hidden_size"] % n == 0]),
        max_seq_len=rng.choice([19, 64]),
        layer_norm_epsilon=rng.choice([1e-5, 1e-3]),
        tie_word_embeddings=size["tie_word_embeddings"],
        attn_config={"softmax_scale": rng.choice([None, 0.3]), "clip_qkv": rng.choice([None, 0.4])},
    )
