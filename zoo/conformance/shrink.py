"""Reduction of a model to a size that trains in seconds, with the same parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zoo.block_spec import BlockSpec
from zoo.model_settings import BASE
from zoo.presets import load
from zoo.settings.axis import Spec
from zoo.settings.edits import SpecJson
from zoo.settings.field_tags import Fact, MaxInTests, facts_of, names_with, said_of
from zoo.spec import ModelSpec, parse

D_MODEL, HEADS, VOCABULARY = 64, 4, 256


def shrunk(name: str) -> ModelSpec:
    """A preset at a size that trains in seconds: the same parts in the same order, fewer and narrower."""
    return shrink(load(name))


def shrink(spec: ModelSpec) -> ModelSpec:
    """The same model at d_model 64, with one layer for each kind of block in `first`, then one for each in `pattern`.

    At least two layers come after `first`, or more if a feature needs them (chunks: three). Widths keep their ratio to
    d_model as nearly as multiples of 8 allow. Heads become 4; kv heads become 4 if the model has as many as heads, 1 if
    it has one, else 2.
    """
    first, pattern = tuple(dict.fromkeys(spec.first)), tuple(dict.fromkeys(spec.pattern))
    blocks = {name: _block(spec.named(name), spec.d_model) for name in (BASE, *spec.blocks)}
    features, alike = spec.features, len({*spec.first, *spec.pattern}) == 1
    least = [feature.least_layers(len(first), alike) for feature in features.values()]
    width = spec.embedding_dim
    return parse(
        {
            **spec.dump(),
            "vocab_size": min(spec.vocab_size, VOCABULARY),
            "d_model": D_MODEL,
            "n_layers": max(len(first) + 2, len(first) + len(pattern), *least),
            **{
                name: feature.shrunk(_small(feature, _Ratio(D_MODEL / spec.d_model, 1.0)), alike)
                for name, feature in features.items()
                if isinstance(getattr(spec, name), Spec)
            },
            "block": blocks.pop(BASE),
            "blocks": blocks,
            "first": first,
            "pattern": pattern,
            "embedding_dim": None if width is None else _eights(width * D_MODEL / spec.d_model),
            "logit_scale": D_MODEL**-0.5 if spec.logit_scale == spec.d_model**-0.5 else spec.logit_scale,
        }
    )


@dataclass(frozen=True)
class _Ratio:
    """Ratio of small to full width, of the stream and of a head."""

    stream: float
    head: float


def _block(block: BlockSpec, d_model: int) -> SpecJson:
    """A resolved block as plain data for d_model 64."""
    heads = getattr(block.mixer, "heads", HEADS)
    stream = D_MODEL / d_model
    data = _small(block, _Ratio(stream, stream * heads / HEADS))
    scales = names_with(type(block.mixer), Fact.SCORE_SCALE)
    if scales and block.mixer.model_copy(update=dict.fromkeys(scales)).resolve(d_model) == block.mixer:
        data["mixer"]["scale"] = None  # it is the default for the head width
    return data


def _small(part: Spec, ratio: _Ratio) -> SpecJson:
    """A shrunk part as plain data."""
    data = part.model_dump(mode="json")
    # Plain data omits settings that are off, but here they may be edits of a base block that has them on.
    data |= {name: getattr(part, name) for name in type(part).model_fields.keys() - data.keys()}
    for name in data.keys() & type(part).model_fields.keys():
        value = getattr(part, name)
        if isinstance(value, Spec):
            data[name] = _small(value, ratio)
        elif value is not None:
            data[name] = _cut(data[name], type(part), name, ratio)
    return data | _heads(part) | _score_scale(part, data)


def _cut(value: Any, owner: type[Spec], name: str, ratio: _Ratio) -> Any:
    """A setting's shrunk plain value: widths keep their ratio to d_model, up to 8, head widths theirs to
    d_model / heads, up to 4; a setting with `MaxInTests` is capped."""
    facts, most = facts_of(owner, name), said_of(owner, name, MaxInTests)
    if most is not None:
        return min(value, most.number)
    if Fact.WIDTH in facts:
        return _eights(min(value * ratio.stream, 8 * D_MODEL))
    if Fact.HEAD_WIDTH in facts:
        return _eights(min(value * ratio.head, 4 * D_MODEL / HEADS))
    return value


def _heads(part: Spec) -> dict[str, int]:
    """Shrunk head counts: 4 heads, and 4, 1 or 2 shared heads (see `shrink`)."""
    names, shared = (names_with(type(part), fact) for fact in (Fact.HEADS, Fact.SHARED_HEADS))
    many = next((getattr(part, name) for name in names), None)
    if many is None:
        return {}
    fewer = {many: HEADS, 1: 1}
    return dict.fromkeys(names, HEADS) | {name: fewer.get(getattr(part, name), HEADS // 2) for name in shared}


def _score_scale(part: Spec, small: SpecJson) -> dict[str, float]:
    """Score scales for the small head width: Gemma's 1/√168 at d = 128 becomes exactly 1/√21 at d = 16."""
    width = getattr(part, "head_dim", None)
    given = {name: getattr(part, name) for name in names_with(type(part), Fact.SCORE_SCALE)}
    return {
        name: round(scale**-2 * small["head_dim"] / width, 9) ** -0.5
        for name, scale in given.items()
        if scale and width
    }


def _eights(features: float) -> int:
    """The nearest positive multiple of 8."""
    return 8 * max(1, round(features / 8))
