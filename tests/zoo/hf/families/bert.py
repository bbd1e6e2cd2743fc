from __future__ import annotations

import random

from transformers import BertConfig

from tests.zoo.hf.draws import act, flag


def draw(rng: random.Random) -> BertConfig:
    heads = rng.choice([1, 2, 3, 5])
    return BertConfig(
        vocab_size=rng.randrange(40, 80),
        hidden_size=heads * rng.choice([3, 4, 7]),
        num_hidden_layers=rng.randrange(1, 4),
        num_attention_heads=heads,
        intermediate_size=rng.randrange(7, 50),
        hidden_act=act(rng),
        hidden_dropout_prob=rng.choice([0.0, 0.1]),
        attention_probs_dropout_prob=rng.choice([0.0, 0.2]),
        max_position_embeddings=rng.choice([19, 64]),
        type_vocab_size=rng.choice([1, 2, 3]),
        layer_norm_eps=rng.choice([1e-12, 1e-3]),
        tie_word_embeddings=flag(rng),
        pad_token_id=None,
    )
