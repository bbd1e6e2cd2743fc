"""Random values that configs of several families share."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

SCALINGS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope", "proportional")

YARN: list[dict[str, Any]] = [
    {},
    {"attention_factor": 1.3},
    {"beta_fast": 8, "beta_slow": 0.5, "truncate": False},
    {"mscale": 0.7, "mscale_all_dim": 1.4},
    {"mscale": 0.7},
]


def sizes(rng: random.Random) -> dict[str, Any]:
    """Small and odd: heads 1 to 6, kv heads 1, some or all."""
    heads = rng.choice([1, 2, 4, 6])
    return {
        "vocab_size": rng.randrange(40, 80),
        "hidden_size": heads * rng.choice([4, 6, 10]),
        "intermediate_size": rng.randrange(7, 50),
        "num_hidden_layers": rng.randrange(1, 5),
        "num_attention_heads": heads,
        "num_key_value_heads": rng.choice([k for k in range(1, heads + 1) if heads % k == 0]),
        "tie_word_embeddings": flag(rng),
        "max_position_embeddings": rng.choice([8, 64]),
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def flag(rng: random.Random) -> bool:
    return rng.random() < 0.5


def rope(rng: random.Random, dim: int, kinds: Sequence[str] = SCALINGS, **more: Any) -> dict[str, Any]:
    """`rope_parameters` for `dim` turned features, with lengths around that of the test's input."""
    kind = rng.choice([kind for kind in kinds if dim > 2 or kind != "dynamic"])
    length, factor = rng.choice([6, 64]), rng.choice([1.5, 8.0])
    own: dict[str, Any] = {}
    if kind in ("linear", "dynamic", "llama3", "yarn", "longrope"):
        own["factor"] = factor
    if kind in ("llama3", "yarn", "longrope"):
        own["original_max_position_embeddings"] = length
    if kind == "llama3":
        own |= {"low_freq_factor": 1.0, "high_freq_factor": rng.choice([1.5, 4.0])}
    if kind == "yarn":
        own |= rng.choice(YARN)
    if kind == "longrope":
        own |= {name: [rng.uniform(1, 5) for _ in range(dim // 2)] for name in ("short_factor", "long_factor")}
        own |= rng.choice([{}, {"attention_factor": 1.3}])
    if kind == "proportional":
        own |= rng.choice([{"factor": factor}, {"partial_rotary_factor": 0.5}])
    return {"rope_type": kind, "rope_theta": rng.choice([100.0, 10_000.0, 5e5]), **own, **more}


WITH_FRACTION = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")
WITH_ODD_FRACTION = ("default", "linear", "llama3")


def partial_rope(rng: random.Random, head_dim: int) -> dict[str, Any]:
    """`rope_parameters` for a part of a head. An odd number of features is rounded up by most families."""
    count = rng.randrange(1, head_dim // 2 * 2 + 1)
    kinds = WITH_ODD_FRACTION if count % 2 else WITH_FRACTION
    return rope(rng, count, kinds, partial_rotary_factor=min(1.0, (count + 0.3) / head_dim))


def turned(size: dict[str, Any]) -> int:
    """Features of a head, where they are not chosen freely."""
    return int(size["hidden_size"] // size["num_attention_heads"])


def head_dim(rng: random.Random) -> int | None:
    return rng.choice([None, 2, 8, 14])


OTHERS = ("mish", "relu6", "linear", "laplace")


def gated_act(rng: random.Random) -> str:
    return rng.choice(["silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "quick_gelu", "relu", "sigmoid", *OTHERS])


def act(rng: random.Random) -> str:
    named = ("silu", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "quick_gelu", "relu", "relu2")
    return rng.choice([*named, *OTHERS])


def any_act(rng: random.Random) -> str:
    """With a gate and without."""
    return rng.choice(["silu", "gelu", "gelu_pytorch_tanh", "quick_gelu", "relu", *OTHERS])


def window(rng: random.Random) -> int | None:
    """None, shorter than the input, longer than it."""
    return rng.choice([None, 1, 4, 7, 30])


def layer_types(rng: random.Random, layers: int) -> list[str]:
    return [rng.choice(["full_attention", "sliding_attention"]) for _ in range(layers)]


def fraction(rng: random.Random, dim: int) -> float:
    """A part of a head whose number of features is even, neither too exact nor the same for all."""
    return rng.choice([1.0, *((turned + 0.3) / dim for turned in range(2, dim, 2))])
