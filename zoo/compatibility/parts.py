"""Compatibility of the parts of a model, each of which declares its needs and breaks (`traits`)."""

from __future__ import annotations

from collections.abc import Mapping

from zoo.block_spec import BlockSpec
from zoo.compatibility.traits import Claim, Ground, check_claims
from zoo.errors import SpecError, under
from zoo.features import Model
from zoo.mixers._heads import check_lenders


def check_layers(model: Model, blocks: Mapping[str, BlockSpec], paths: tuple[str, ...]) -> None:
    """Raise SpecError if layers or features of a model cannot be combined. blocks: the resolved blocks in use, keyed by
    path; paths: the path of each layer's block."""
    _check_residuals(blocks)
    _check_mixers(blocks)
    check_lenders([(path, blocks[path].mixer) for path in paths])
    for name, feature in model.features.items():
        with under(name):
            feature.check(model)
    claims = [claim for name, feature in model.features.items() for claim in feature.claims(name, model)]
    if model.visible != "causal":
        claims.append(Claim("visible", breaks=frozenset({Ground.CAUSAL})))
    for where, block in blocks.items():
        layers = [layer for layer, path in enumerate(paths) if path == where]
        claims += block.claims(where, model.d_model, layers)
    check_claims(claims)
    if "encoder" in model.features and model.token_types is not None:
        raise SpecError("token_types", "not supported with an encoder")
    for where, block in blocks.items():
        if block.cross is not None and "encoder" not in model.features:
            raise SpecError(f"{where}.cross", "needs an encoder to attend to: set encoder")
        with under(where):
            block.check_mask(model.visible)


def _check_residuals(blocks: Mapping[str, BlockSpec]) -> None:
    """Require one shape of the stream between blocks, and the same residual in all layers if one depends on the layer's
    number."""
    first, *others = ((where, block.norm_placement) for where, block in blocks.items())
    for where, placement in others:
        if placement.streams != first[1].streams:
            ours, theirs = placement.stream_shape, first[1].stream_shape
            reason = f"all layers need a stream of the same shape: {ours} here, {theirs} in {first[0]}"
            raise SpecError(f"{where}.norm_placement", reason)
    kinds = {block.norm_placement.kind: (where, block.norm_placement) for where, block in blocks.items()}
    for where, placement in kinds.values():
        if placement.numbers_layers and len(kinds) > 1:
            reason = f"all layers must have {placement.kind}; found {', '.join(kinds)}"
            raise SpecError(f"{where}.norm_placement", reason)


def _check_mixers(blocks: Mapping[str, BlockSpec]) -> None:
    """Require mixers to hand queries to position schemes that read them, and one shape of the values that value
    residuals mix."""
    for where, block in blocks.items():
        for scheme, _ in block.mixer.positions():
            if scheme.reads_queries and not block.mixer.gives_queries:
                reason = f"{scheme.kind} needs the queries, which {block.mixer.kind} does not provide: use attention"
                raise SpecError(f"{where}.mixer.position", reason)
    shapes = [(where, block.mixer.shared_values) for where, block in blocks.items()]
    sharing = [(where, shape) for where, shape in shapes if shape is not None]
    for where, (heads, features) in sharing:
        if (heads, features) != sharing[0][1]:
            model = "{} heads of {} features".format(*sharing[0][1])
            reason = f"{heads} value heads of {features} features here, {model} in {sharing[0][0]}"
            raise SpecError(f"{where}.mixer", f"value_residual needs values of the same shape: {reason}")
