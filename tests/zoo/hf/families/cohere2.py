from __future__ import annotations

import random

from transformers import Cohere2Config

from tests.zoo.hf.draws import flag, gated_act, layer_types, rope, sizes, turned


def draw(rng: random.Random) -> Cohere2Config:
    general = sizes(rng)
    parameters = rope(rng, turned(general))
    # Where transformers in chunks is the reference, not a window of 1: its cache then keeps every token.
    windows = [3, 5, 40] if parameters["rope_type"] in ("dynamic", "longrope") else [1, 3, 5, 40]
    return Cohere2Config(
        **general,
        hidden_act=gated_act(rng),
        layer_norm_eps=rng.choice([1e-5, 1e-3]),
        logit_scale=rng.choice([0.0625, 1.7]),
        attention_bias=flag(rng),
        sliding_window=rng.choice(windows),
        layer_types=rng.choice([None, layer_types(rng, general["num_hidden_layers"])]),
        rope_parameters=parameters,
    )
