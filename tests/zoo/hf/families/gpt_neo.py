from __future__ import annotations

import random

from transformers import GPTNeoConfig

from tests.zoo.hf.draws import act, sizes


def draw(rng: random.Random) -> GPTNeoConfig:
    size = sizes(rng)
    return GPTNeoConfig(
        vocab_size=size["vocab_size"],
        hidden_size=size["hidden_size"],
        num_layers=size["num_hidden_layers"],
        num_heads=size["num_attention_heads"],
        intermediate_size=rng.choice([None, 13]),
        max_position_embeddings=rng.choice([19, 64]),
        attention_types=[[[rng.choice(["global", "local"])], 1] for _ in range(size["num_hidden_layers"])],
        window_size=rng.choice([1, 5, 30]),
        activation_function=act(rng),
        layer_norm_epsilon=rng.choice([1e-5, 1e-3]),
        tie_word_embeddings=size["tie_word_embeddings"],
        bos_token_id=None,
        eos_token_id=None,
    )
