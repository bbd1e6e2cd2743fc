from __future__ import annotations

import random

from transformers import BioGptConfig

from tests.zoo.hf.draws import any_act, flag


def draw(rng: random.Random) -> BioGptConfig:
    heads = rng.choice([1, 2, 3, 5])
    return BioGptConfig(
        vocab_size=rng.randrange(40, 80),
        hidden_size=heads * rng.choice([3, 4, 7]),
        num_hidden_layers=rng.randrange(1, 4),
        intermediate_size=rng.randrange(7, 50),
        max_position_embeddings=rng.choice([19, 64]),
        num_attention_heads=heads,
        hidden_act=any_act(rng),
        hidden_dropout_prob=rng.choice([0.0, 0.1]),
        attention_probs_dropout_prob=rng.choice([0.0, 0.1]),
        scale_embedding=flag(rng),
        tie_word_embeddings=flag(rng),
    )
