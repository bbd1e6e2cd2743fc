"""Activation functions under transformers' names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_args

from zoo.errors import UnsupportedError
from zoo.ffns import Ffn
from zoo.ffns._activations import Approximation, OtherActivation, approximated
from zoo.hf._config import Config
from zoo.settings.edits import SpecJson

T = TypeVar("T")

GATED: dict[str, SpecJson] = {
    "silu": {"kind": "swiglu"},
    "gelu": {"kind": "geglu"},
    "gelu_pytorch_tanh": {"kind": "geglu", "approximate": "tanh"},
    "quick_gelu": {"kind": "geglu", "approximate": "sigmoid"},
    "relu": {"kind": "reglu"},
    "sigmoid": {"kind": "glu"},
    **{name: {"kind": "glu", "activation": name} for name in ("relu2", *get_args(OtherActivation))},
}
UNGATED: dict[str, SpecJson] = {
    "relu": {"kind": "relu"},
    "gelu": {"kind": "gelu"},
    "gelu_pytorch_tanh": {"kind": "gelu", "approximate": "tanh"},
    "quick_gelu": {"kind": "gelu", "approximate": "sigmoid"},
    "silu": {"kind": "silu"},
    "relu2": {"kind": "relu2"},
    **{name: {"kind": "mlp", "activation": name} for name in ("sigmoid", *get_args(OtherActivation))},
}
OTHER_NAMES = {
    "swish": "silu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_pytorch_tanh",
    "gelu_fast": "gelu_pytorch_tanh",
    "gelu_python_tanh": "gelu_pytorch_tanh",
    "gelu_accurate": "gelu_pytorch_tanh",
}


def name_of(kind: str, approximate: Approximation = "none", activation: str = "", **others: Any) -> str:
    """Activation name, as experts and convolutions spell it, for this kind of FFN."""
    if kind == "mlp":
        return activation
    return f"{kind}_{activation}" if activation else approximated(kind, approximate)


PLAIN: dict[str, str] = {theirs: name_of(**kind) for theirs, kind in UNGATED.items()}
"""Our names of ungated activations, keyed by transformers' names."""


def ffn(config: Config, key: str, *, gated: bool) -> SpecJson:
    """Spec of the FFN whose activation the config names under `key`. Raises UnsupportedError."""
    return dict(_looked_up(config, key, GATED if gated else UNGATED))


def plain_activation(config: Config, key: str) -> str:
    """Our name of the ungated activation that the config names under `key`. Raises UnsupportedError."""
    return _looked_up(config, key, PLAIN)


def _looked_up(config: Config, key: str, table: Mapping[str, T]) -> T:
    name = config[key]
    canonical = OTHER_NAMES.get(name, name)
    if canonical not in table:
        known = ", ".join([*table, *(other for other, name in OTHER_NAMES.items() if name in table)])
        raise UnsupportedError(key, f"{name!r} cannot be converted, only {known}")
    return table[canonical]


def activation(spec: Ffn, *, gated: bool) -> str:
    """transformers' name of an FFN's activation. Raises UnsupportedError."""
    names, own = theirs_by_name(gated=gated), name_of(**spec.model_dump())
    if own not in names:
        raise UnsupportedError("ffn", f"{spec.kind} has no counterpart")
    return names[own]


def theirs_by_name(*, gated: bool) -> dict[str, str]:
    """transformers' names of activations, keyed by ours (see `name_of`)."""
    if gated:
        return {name_of(**kind): name for name, kind in GATED.items()}
    return {ours: name for name, ours in PLAIN.items()}
