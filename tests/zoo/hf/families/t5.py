from __future__ import annotations

import random
from typing import Any

from transformers import MT5Config, T5Config

from tests.zoo.hf.draws import OTHERS, flag


def draw(rng: random.Random) -> T5Config | MT5Config:
    """T5 as it was first, v1.1, which has `tie_word_embeddings: false` in its config, and mT5."""
    return drawn(rng, rng.choice([T5Config, MT5Config]), flag(rng))


def drawn(rng: random.Random, config: Any, tied: bool) -> T5Config | MT5Config:
    gate = rng.choice(["", "gated-"])
    act = rng.choice(["relu", "gelu", "gelu_new", "silu", "gelu_python" if gate else "relu2", *OTHERS])
    return config(
        vocab_size=rng.randrange(40, 80),
        d_model=rng.choice([8, 12, 21]),
        d_kv=rng.choice([3, 4, 8]),
        d_ff=rng.randrange(7, 50),
        num_layers=rng.randrange(1, 4),
        num_decoder_layers=rng.choice([None, 1, 3]),
        num_heads=rng.choice([1, 2, 3, 5]),
        relative_attention_num_buckets=rng.choice([4, 7, 8, 32]),
        relative_attention_max_distance=rng.choice([17, 20, 128]),
        dropout_rate=rng.choice([0.0, 0.1]),
        layer_norm_epsilon=rng.choice([1e-6, 1e-3]),
        feed_forward_proj=gate + act,
        tie_word_embeddings=tied,
        pad_token_id=None,
    )
