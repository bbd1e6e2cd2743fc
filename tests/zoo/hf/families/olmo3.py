from __future__ import annotations

import random

from transformers import Olmo3Config

from tests.zoo.hf.draws import flag, gated_act, layer_types, rope, sizes, turned


def draw(rng: random.Random) -> Olmo3Config:
    size = sizes(rng)
    positions = {kind: rope(rng, turned(size)) for kind in ("full_attention", "sliding_attention")}
    # Of YaRN by kind of layer, transformers looks for `truncate` at the wrong place.
    for each in positions.values():
        each.pop("truncate", None)
    return Olmo3Config(
        **size,
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        rms_norm_eps=rng.choice([1e-6, 1e-3]),
        sliding_window=rng.choice([1, 4, 30]),
        layer_types=layer_types(rng, size["num_hidden_layers"]),
        rope_parameters=positions,
    )
