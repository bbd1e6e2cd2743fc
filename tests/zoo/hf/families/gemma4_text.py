from __future__ import annotations

import random
from typing import Any

from transformers import Gemma4TextConfig

from tests.zoo.hf.draws import flag, layer_types, rope, sizes
from tests.zoo.hf.families.gemma3n_text import ACTIVATIONS


def draw(rng: random.Random) -> Gemma4TextConfig:
    size, dims = sizes(rng), {kind: rng.choice([4, 8, 14]) for kind in ("sliding_attention", "full_attention")}
    # Norms of a few features can be of a vector so short that float32 loses it, in transformers too.
    size["hidden_size"] = max(8, size["hidden_size"])
    kv_heads = [k for k in range(1, size["num_attention_heads"] + 1) if size["num_attention_heads"] % k == 0]
    # Of RoPE by length transformers computes frequencies for one size of heads only; of YaRN by kind of layer it looks
    # for `truncate` at the wrong place.
    scalings = ("default", "linear", "llama3", "yarn", "proportional")
    positions = {kind: rope(rng, dim, scalings) for kind, dim in dims.items()}
    for each in positions.values():
        each.pop("truncate", None)
    return Gemma4TextConfig(
        **{**size, **shared(rng, size["num_hidden_layers"])},
        head_dim=dims["sliding_attention"],
        global_head_dim=dims["full_attention"],
        num_global_key_value_heads=rng.choice([None, *kv_heads]),
        attention_k_eq_v=flag(rng),
        rope_parameters=positions,
        hidden_activation=rng.choice(ACTIVATIONS),
        attention_bias=flag(rng),
        rms_norm_eps=rng.choice([1e-6, 1e-3]),
        final_logit_softcapping=rng.choice([None, 2.0, 30.0]),
        sliding_window=rng.choice([1, 4, 30]),
        vocab_size_per_layer_input=size["vocab_size"],
        use_double_wide_mlp=flag(rng),
        use_bidirectional_attention=rng.choice([None, "vision"]),
    )


def shared(rng: random.Random, layers: int) -> dict[str, Any]:
    """Layers that read keys of layers below come last, each after one of its kind that has its own."""
    types = [*layer_types(rng, layers)[:-1], "full_attention"]
    count = rng.choice([n for n in range(layers) if set(types[: layers - n]) == set(types)])
    # transformers cannot run shared keys without per-layer embeddings.
    inputs = rng.choice([3, 8] if count else [0, 3, 8])
    return {"layer_types": types, "num_kv_shared_layers": count, "hidden_size_per_layer_input": inputs}
