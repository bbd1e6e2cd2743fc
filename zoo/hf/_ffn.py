"""Activations by the names that transformers gives them."""

from __future__ import annotations

from typing import Any

from zoo.edits import SpecJson
from zoo.errors import UnsupportedError
from zoo.ffns import Ffn
from zoo.ffns._activations import Approximation, approximated
from zoo.hf._config import Config

GATED: dict[str, SpecJson] = {
    "silu": {"kind": "swiglu"},
    "gelu": {"kind": "geglu"},
    "gelu_pytorch_tanh": {"kind": "geglu", "approximate": "tanh"},
    "quick_gelu": {"kind": "geglu", "approximate": "sigmoid"},
    "relu": {"kind": "reglu"},
    "sigmoid": {"kind": "glu"},
}
UNGATED: dict[str, SpecJson] = {
    "relu": {"kind": "relu"},
    "gelu": {"kind": "gelu"},
    "gelu_pytorch_tanh": {"kind": "gelu", "approximate": "tanh"},
    "quick_gelu": {"kind": "gelu", "approximate": "sigmoid"},
    "silu": {"kind": "silu"},
    "relu2": {"kind": "relu2"},
}
OTHER_NAMES = {
    "swish": "silu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_pytorch_tanh",
    "gelu_fast": "gelu_pytorch_tanh",
    "gelu_python_tanh": "gelu_pytorch_tanh",
}


def ffn(config: Config, key: str, *, gated: bool) -> SpecJson:
    """The kind of FFN whose activation the config names under `key`."""
    table = GATED if gated else UNGATED
    name = config[key]
    canonical = OTHER_NAMES.get(name, name)
    if canonical not in table:
        known = ", ".join([*table, *(other for other, name in OTHER_NAMES.items() if name in table)])
        raise UnsupportedError(key, f"{name!r} cannot be converted, only {known}")
    return dict(table[canonical])


def name_of(kind: str, approximate: Approximation = "none", **others: Any) -> str:
    """What experts and convolutions call the activation of this kind of FFN."""
    return approximated(kind, approximate)


def plain_activation(config: Config, key: str) -> str:
    """The name of the activation that the config names under `key`, where nothing is gated."""
    return name_of(**ffn(config, key, gated=False))


def activation(spec: Ffn, *, gated: bool) -> str:
    """The name of an FFN's activation."""
    wanted = {"kind": spec.kind}
    if getattr(spec, "approximate", "none") != "none":
        wanted["approximate"] = spec.approximate  # type: ignore[attr-defined]
    for name, kind in (GATED if gated else UNGATED).items():
        if kind == wanted:
            return name
    raise UnsupportedError("ffn", f"{spec.kind} has no counterpart")


def theirs_by_name(*, gated: bool) -> dict[str, str]:
    """transformers' names of activations by ours (see `name_of`)."""
    return {name_of(**kind): name for name, kind in (GATED if gated else UNGATED).items()}
