"""Conditions under which a wider model computes the same function as a narrower one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from zoo.block_spec import BlockSpec
from zoo.compatibility.support import unsupported
from zoo.compatibility.traits import Operation
from zoo.errors import SpecError, under
from zoo.ffns._dense import Dense
from zoo.mixers.attention import Attention
from zoo.settings.field_tags import Fact, names_with
from zoo.spec import ModelSpec

GROWING = (Fact.WIDTH, Fact.HEADS, Fact.SHARED_HEADS, Fact.SCALE)
SIZES = tuple(name for part in (ModelSpec, Attention, Dense) for name in names_with(part, *GROWING))
"""Settings in which the two specs may differ: they determine what is copied or scaled."""


def check_specs(source: ModelSpec, target: ModelSpec) -> None:
    """Raise SpecError if a model of `target` cannot compute the same function as one of `source`."""
    for part in unsupported(target, Operation.WIDENING):
        raise unknown(part.path, part.name)
    if source.n_layers != target.n_layers:
        reason = f"must be {source.n_layers}, not {target.n_layers}: growth: width keeps the number of layers"
        raise SpecError("n_layers", reason)
    for path, ours, theirs in _differences(target.computation(), source.computation()):
        raise SpecError(path, f"must stay {theirs}, not {ours}: growth: width changes only {', '.join(SIZES)}")
    if (source.embedding_dim is None) != (target.embedding_dim is None):
        raise SpecError("embedding_dim", "growth: width needs a factorised embedding in both models or in neither")
    _multiple("d_model", source.d_model, target.d_model)
    _multiple("embedding_dim", source.table_width, target.table_width)
    for number, pair in enumerate(zip(source.layers, target.layers, strict=True)):
        with under(f"layers.{number}"):
            _check_sizes(*pair)
    factor = leftover(source, target)
    if factor != 1 and target.embedding_dim is None and norm_before_head(target) is None:
        larger, scale = f"{1 / factor:.6g} times as large", f"{target.logit_scale * factor:.6g}"
        reason = (
            f"tied logits would be {larger}, without a gain before the head to undo that: set logit_scale to {scale}"
        )
        raise SpecError("tie_embeddings", reason)


def unknown(path: str, what: str) -> SpecError:
    return SpecError(path, f"growth: width cannot widen {what}")


def _check_sizes(narrow: BlockSpec, wide: BlockSpec) -> None:
    heads, kv_heads, _ = zip(attention_of(narrow).sizes(), attention_of(wide).sizes(), strict=True)
    _multiple("mixer.kv_heads", *kv_heads)
    group, wider = (h // k for h, k in zip(heads, kv_heads, strict=True))
    if wider % group:
        reason = f"growth: width needs a multiple of {group} query heads per kv head, not {wider}"
        raise SpecError("mixer.heads", reason)
    if isinstance(narrow.ffn, Dense) and isinstance(wide.ffn, Dense) and wide.ffn.width < narrow.ffn.width:
        raise SpecError("ffn.d_ff", f"growth: width needs at least {narrow.ffn.width}, not {wide.ffn.width}")


def _multiple(path: str, narrow: int, wide: int) -> None:
    if wide % narrow:
        raise SpecError(path, f"growth: width needs a multiple of {narrow}, not {wide}")


def _differences(ours: Any, theirs: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Settings other than sizes that differ: path, our value, their value."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted((ours.keys() | theirs.keys()).difference(SIZES), key=lambda key: (key != "kind", key)):
            yield from _differences(ours.get(key), theirs.get(key), f"{path}.{key}".lstrip("."))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from _differences(*pair, f"{path}.{number}")
    elif ours != theirs:
        yield path, ours, theirs


def leftover(source: ModelSpec, target: ModelSpec) -> float:
    """Factor on the input of a tied head that preserves the logits: s / (s′ t c) for logit scales s (source) and s′, a
    table scaled by t, and c copies of its features. 1 for an untied head."""
    table = source.embedding_factor / target.embedding_factor
    factor = source.logit_scale / target.logit_scale / table / (target.table_width / source.table_width)
    return factor if target.tie_embeddings and not math.isclose(factor, 1.0) else 1.0


def norm_before_head(model: ModelSpec) -> str | None:
    """Name of the norm whose output the head reads; None without such a norm or its gain."""
    norm = model.block.norm
    if norm.kind == "none" or not getattr(norm, "gain", True):
        return None
    if model.head_transform is not None:
        return "transform.norm"
    return "norm" if model.has_final_norm else None


def attention_of(block: BlockSpec) -> Attention:
    """The block's mixer. Raises SpecError unless it is attention."""
    if not isinstance(block.mixer, Attention):
        raise unknown("mixer", block.mixer.kind)
    return block.mixer
