"""What tells two architectures apart, however their specs are written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from zoo.axis import Spec
from zoo.edits import SpecJson
from zoo.facts import Fact, names_with

if TYPE_CHECKING:
    from zoo.spec import ModelSpec


def spelled_out(model: ModelSpec, dump: Callable[[Spec], SpecJson]) -> SpecJson:
    """Every layer in full, every default a number. dump: what is told of a part."""
    has_norms = model.has_final_norm or model.has_embedding_norm or model.mtp is not None
    has_norms = has_norms or model.head_transform is not None
    spelled = {"n_layers", *names_with(type(model), Fact.LAYERS)}
    encoder = {} if model.encoder_spec is None else {"encoder": spelled_out(model.encoder_spec, dump)}
    return {
        **{name: value for name, value in dump(model).items() if name not in spelled},
        "layers": [dump(layer) for layer in model.layers],
        "norm": dump(model.block.norm) if has_norms else None,
        "final_norm": model.has_final_norm,
        "embedding_norm": model.has_embedding_norm,
        "embedding_scale": model.embedding_factor,
        "embedding_dim": model.table_width,
        **encoder,
    }


def digest_of(spelled: SpecJson) -> str:
    """16 hex digits."""
    text = json.dumps(spelled, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
