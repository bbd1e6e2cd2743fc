from __future__ import annotations

import random

from transformers import OpenAIGPTConfig

from tests.zoo.hf.draws import flag


def draw(rng: random.Random) -> OpenAIGPTConfig:
    heads = rng.choice([1, 2, 3, 5])
    return OpenAIGPTConfig(
        vocab_size=rng.randrange(40, 80),
        n_positions=rng.choice([19, 64]),
        n_embd=heads * rng.choice([3, 4, 7]),
        n_layer=rng.randrange(1, 4),
        n_head=heads,
        afn=rng.choice(["gelu", "relu", "silu"]),
        attn_pdrop=rng.choice([0.0, 0.1]),
        embd_pdrop=rng.choice([0.0, 0.1]),
        resid_pdrop=rng.choice([0.0, 0.1]),
        layer_norm_epsilon=rng.choice([1e-5, 1e-3]),
        tie_word_embeddings=flag(rng),
    )
