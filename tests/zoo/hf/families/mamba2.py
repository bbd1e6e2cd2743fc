from __future__ import annotations

import random

from transformers import Mamba2Config

from tests.zoo.hf.draws import any_act, flag


def draw(rng: random.Random) -> Mamba2Config:
    heads, head_dim, expand = rng.choice([2, 4, 6]), rng.choice([4, 6]), rng.choice([1, 2])
    return Mamba2Config(
        vocab_size=rng.randrange(40, 80),
        hidden_size=heads * head_dim // expand,
        num_hidden_layers=rng.randrange(1, 4),
        num_heads=heads,
        head_dim=head_dim,
        expand=expand,
        state_size=rng.randrange(3, 9),
        n_groups=rng.choice([groups for groups in range(1, heads + 1) if heads % groups == 0]),
        conv_kernel=rng.choice([2, 3, 4]),
        use_bias=flag(rng),
        use_conv_bias=flag(rng),
        layer_norm_epsilon=rng.choice([1e-5, 1e-3]),
        hidden_act=any_act(rng),
        time_step_limit=rng.choice([(0.0, float("inf")), (0.4, float("inf")), (0.0, 0.9), (0.5, 0.8)]),
        chunk_size=rng.choice([4, 6, 256]),
        residual_in_fp32=flag(rng),
        tie_word_embeddings=flag(rng),
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
