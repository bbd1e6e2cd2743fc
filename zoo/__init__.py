"""Language models built from published block variants, freely combined.

spec = zoo.load("llama3", **{"d_model": 256, "n_layers": 4, "block.mixer.kv_heads": 2})
model = zoo.build(spec)
logits = model(tokens)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo import decode
    from zoo.adapting import after_update
    from zoo.attend import attention_backend
    from zoo.block_spec import BlockSpec
    from zoo.checkpoint import open_model as open
    from zoo.checkpoint import save
    from zoo.construction import build
    from zoo.conversion import convert
    from zoo.costs import Cost, cost
    from zoo.decode.generate import generate
    from zoo.errors import ConversionWarning, SpecError, SpecWarning, UnsupportedError
    from zoo.hf import from_hf, to_hf
    from zoo.init import roles
    from zoo.model import Decoder
    from zoo.presets import load
    from zoo.probes import listening, taps
    from zoo.spec import ModelSpec, parse

# Lazy, so that `import zoo` alone does not load torch.
_HOMES = {
    "zoo.adapting": ("after_update",),
    "zoo.attend": ("attention_backend",),
    "zoo.block_spec": ("BlockSpec",),
    "zoo.checkpoint": ("open", "save"),
    "zoo.construction": ("build",),
    "zoo.conversion": ("convert",),
    "zoo.costs": ("Cost", "cost"),
    "zoo.decode": ("generate",),
    "zoo.errors": ("ConversionWarning", "SpecError", "SpecWarning", "UnsupportedError"),
    "zoo.hf": ("from_hf", "to_hf"),
    "zoo.init": ("roles",),
    "zoo.model": ("Decoder",),
    "zoo.presets": ("load",),
    "zoo.probes": ("listening", "taps"),
    "zoo.spec": ("ModelSpec", "parse"),
}

__all__ = [
    "BlockSpec",
    "ConversionWarning",
    "Cost",
    "Decoder",
    "ModelSpec",
    "SpecError",
    "SpecWarning",
    "UnsupportedError",
    "after_update",
    "attention_backend",
    "build",
    "convert",
    "cost",
    "decode",
    "from_hf",
    "generate",
    "listening",
    "load",
    "open",
    "parse",
    "roles",
    "save",
    "taps",
    "to_hf",
]


def __getattr__(name: str) -> Any:
    if name == "decode":
        return importlib.import_module("zoo.decode")
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'zoo' has no attribute '{name}'")
    value = getattr(importlib.import_module(home), "open_model" if name == "open" else name)
    globals()[name] = value
    return value
