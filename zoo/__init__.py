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
_HOME = {
    "attention_backend": "zoo.attend",
    "open": "zoo.checkpoint:open_model",
    "save": "zoo.checkpoint",
    "convert": "zoo.conversion",
    "Cost": "zoo.costs",
    "cost": "zoo.costs",
    "ConversionWarning": "zoo.errors",
    "SpecError": "zoo.errors",
    "SpecWarning": "zoo.errors",
    "UnsupportedError": "zoo.errors",
    "from_hf": "zoo.hf",
    "to_hf": "zoo.hf",
    "generate": "zoo.decode",
    "after_update": "zoo.adapting",
    "roles": "zoo.init",
    "Decoder": "zoo.model",
    "build": "zoo.construction",
    "load": "zoo.presets",
    "BlockSpec": "zoo.block_spec",
    "ModelSpec": "zoo.spec",
    "parse": "zoo.spec",
    "listening": "zoo.probes",
    "taps": "zoo.probes",
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
    if name not in _HOME:
        raise AttributeError(f"module 'zoo' has no attribute '{name}'")
    module, _, attribute = _HOME[name].partition(":")
    value = getattr(importlib.import_module(module), attribute or name)
    globals()[name] = value
    return value
