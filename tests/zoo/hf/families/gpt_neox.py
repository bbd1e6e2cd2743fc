from __future__ import annotations

import random

from transformers import GPTNeoXConfig

from tests.zoo.hf.draws import act, flag, partial_rope, sizes, turned


def draw(rng: random.Random) -> GPTNeoXConfig:
    general = sizes(rng)
    del general["num_key_value_heads"]
    return GPTNeoXConfig(
        **general,
        hidden_act=act(rng),
        layer_norm_eps=rng.choice([1e-5, 1e-3]),
        use_parallel_residual=flag(rng),
        attention_bias=flag(rng),
        hidden_dropout=rng.choice([0.0, 0.1]),
        attention_dropout=rng.choice([0.0, 0.1]),
        rope_parameters=partial_rope(rng, turned(general)),
    )
