from __future__ import annotations

import random
from typing import Any

from transformers import Gemma3nTextConfig

from tests.zoo.hf.draws import flag, layer_types, rope, sizes

ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh", "quick_gelu", "relu")


def draw(rng: random.Random) -> Gemma3nTextConfig:
    size, dim = sizes(rng), rng.choice([2, 8, 14])
    # Each stream is scaled to the length of another: of four features one can be so short that float32 loses the rest,
    # in transformers too.
    size["hidden_size"] = max(8, size["hidden_size"])
    # Of YaRN by kind of layer, transformers looks for `truncate` at the wrong place.
    positions = {kind: {**rope(rng, dim)} for kind in ("sliding_attention", "full_attention")}
    for each in positions.values():
        each.pop("truncate", None)
    return Gemma3nTextConfig(
        **{**size, **per_layer(rng, size["num_hidden_layers"])},
        head_dim=dim,
        rope_parameters=positions,
        hidden_activation=rng.choice(ACTIVATIONS),
        attention_bias=flag(rng),
        rms_norm_eps=rng.choice([1e-6, 1e-3]),
        final_logit_softcapping=rng.choice([2.0, 30.0]),
        sliding_window=rng.choice([1, 4, 30]),
        vocab_size_per_layer_input=rng.choice([size["vocab_size"], 30]),
        hidden_size_per_layer_input=rng.choice([3, 8]),
        laurel_rank=rng.choice([1, 5]),
        **altup(rng),
    )


def per_layer(rng: random.Random, layers: int) -> dict[str, Any]:
    """Layers that read keys of layers below come last, each after one of its kind that has its own."""
    types = layer_types(rng, layers)
    shared = rng.choice([n for n in range(layers) if set(types[: layers - n]) == set(types)])
    widths = [rng.randrange(7, 50), rng.randrange(7, 50)]
    return {
        "layer_types": types,
        "num_kv_shared_layers": shared,
        "intermediate_size": rng.choice([widths[0], [rng.choice(widths) for _ in range(layers)]]),
        "activation_sparsity_pattern": rng.choice([None, [rng.choice([0.0, 0.4, 0.9]) for _ in range(layers)]]),
    }


def altup(rng: random.Random) -> dict[str, Any]:
    streams = rng.choice([2, 3, 4])
    return {
        "altup_num_inputs": streams,
        "altup_active_idx": rng.randrange(streams),
        "altup_coef_clip": rng.choice([120.0, 0.5]),
    }
