"""Kinds of models: encoders, encoders with decoders, models that see all of a prefix. What each asks of its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PositiveInt, ValidationError, field_validator

from zoo import random_depth
from zoo.axis import Spec
from zoo.chunks import unlike_tokens
from zoo.edits import SpecJson, expand, merge
from zoo.errors import SpecError
from zoo.explain import explain
from zoo.facts import Fact, names_with
from zoo.mixers._reuse import check_lenders

if TYPE_CHECKING:
    from zoo.block_spec import BlockSpec
    from zoo.residuals import Residual
    from zoo.spec import ModelSpec

MAX_LAYERS = 10_000

Names = Annotated[tuple[str, ...], Field(strict=False)]


class EncoderSpec(Spec):
    """A bidirectional stack of blocks, to whose output the decoder attends through `block.cross`.

    It has the decoder's d_model, token table and ways to embed; tables of positions are its own. `block` is edits of
    the decoder's base block, `blocks` edits of that; layers are named as those of the decoder are.
    """

    n_layers: Annotated[PositiveInt, Field(le=MAX_LAYERS)] = 4
    block: SpecJson = Field(default={})
    blocks: dict[str, SpecJson] = Field(default={})
    first: Names = ()
    pattern: Annotated[Names, Field(min_length=1)] = ("block",)
    final_norm: bool | None = None

    @field_validator("block", mode="before")
    @classmethod
    def _nested(cls, block: Any) -> Any:
        return expand(block) if isinstance(block, Mapping) else block


def encoder_of(model: ModelSpec) -> ModelSpec | None:
    """The encoder as a model of its own, all that it shares with the decoder included. Raises SpecError."""
    if model.encoder is None:
        return None
    cls = type(model)
    own = {*EncoderSpec.model_fields, *names_with(cls, Fact.DECODER)}
    shared = {name: getattr(model, name) for name in cls.model_fields if name not in own}
    block = merge(model.block.model_copy(update={"cross": None}).model_dump(), model.encoder.block)
    try:
        return cls.model_validate({**shared, **dict(model.encoder), "block": block, "visible": "all"})
    except ValidationError as error:
        raise explain(error, cls)[0].under("encoder") from None


def check_names(model: ModelSpec, base: str) -> None:
    """Raise SpecError where layers are of blocks that there are not, or share weights and are not alike. base: the name
    of the base block."""
    if base in model.blocks:
        raise SpecError(f"blocks.{base}", f"'{base}' names the base block: edit it as {base}.…")
    for field in ("first", "pattern"):
        for name in getattr(model, field):
            if name != base and name not in model.blocks:
                known = ", ".join([base, *model.blocks])
                raise SpecError(field, f"no block is named '{name}': there are {known}")
    if model.sharing is not None:
        try:
            model.sharing.check(model.layer_names)
        except SpecError as error:
            raise error.under("sharing") from None


def check_kind(model: ModelSpec, blocks: Mapping[str, BlockSpec]) -> None:
    """Raise SpecError where the parts cannot make the kind of model. blocks: the resolved ones in use, by path."""
    for where, block in blocks.items():
        if block.cross is not None and model.encoder is None:
            raise SpecError(f"{where}.cross", "there is no encoder to attend to: set encoder too")
        try:
            block.check_sight(model.visible)
        except SpecError as error:
            raise error.under(where) from None
    if model.visible == "all" and model.encoder is not None:
        raise SpecError("encoder", "a model with visible: all is an encoder itself")
    if model.mtp is not None and (model.visible != "causal" or model.encoder is not None):
        raise SpecError("mtp", "modules that look ahead are for causal models without an encoder")
    if model.encoder is not None and model.token_types is not None:
        raise SpecError("token_types", "a model with an encoder has none")
    encoder_of(model)


def check_layers(model: ModelSpec, blocks: Mapping[str, BlockSpec]) -> None:
    """Raise SpecError where what layers hand each other has not one shape: the streams between blocks, and values that
    are mixed. blocks: the resolved ones in use, by path."""
    first, *others = ((where, block.norm_placement) for where, block in blocks.items())
    for where, placement in others:
        if placement.streams != first[1].streams:
            ours, theirs = placement.stream_shape, first[1].stream_shape
            reason = f"reads and writes a stream of {ours}, {first[0]} one of {theirs}: all layers need the same"
            raise SpecError(f"{where}.norm_placement", reason)
    _check_numbered(model, blocks)
    for name in ("altup", "per_layer_embeddings"):
        if getattr(model, name) is not None and first[1].streams is not None:
            raise SpecError(
                name, f"reads a stream of (B, T, D), and that of {first[1].kind} is {first[1].stream_shape}"
            )
    _check_loop(model, first[1])
    _check_readers(blocks)
    for where, block in blocks.items():
        for reason in () if block.depth_routing is None else _unrouted(model, block):
            raise SpecError(f"{where}.depth_routing", reason)
    _check_recursion(model)
    _check_values(blocks)
    check_lenders([(path, blocks[path].mixer) for path in model.layer_paths])
    if model.mtp is not None and blocks[model.layer_paths[-1]].mixer.borrows:
        raise SpecError(
            "mtp", "its modules are blocks of the last layer's kind, which has no keys of its own (reuse_kv)"
        )
    if model.chunks is not None:
        model.chunks.check(model, [(path, blocks[path]) for path in model.layer_paths])
    if model.unet_skips and model.n_layers < 2:
        raise SpecError("unet_skips", "a single layer has no mirror image: n_layers must be at least 2")
    if model.value_embeddings is not None:
        try:
            model.value_embeddings.widths([layer.mixer.value_heads for layer in model.layers])
        except SpecError as error:
            raise error.under("value_embeddings") from None


def _check_numbered(model: ModelSpec, blocks: Mapping[str, BlockSpec]) -> None:
    """Of residuals that count layers."""
    kinds = {block.norm_placement.kind: (where, block) for where, block in blocks.items()}
    for where, block in kinds.values():
        if block.norm_placement.numbers_layers:
            kind = block.norm_placement.kind
            if len(kinds) > 1:
                raise SpecError(f"{where}.norm_placement", f"{kind} is of all layers, and some have {', '.join(kinds)}")
            for name in ("sharing", "chunks", "mtp", "layer_loss", "unet_skips"):
                if getattr(model, name):
                    raise SpecError(f"{where}.norm_placement", f"{kind} counts the layers of one stack, beside {name}")


def _check_loop(model: ModelSpec, placement: Residual) -> None:
    """Of input injection."""
    if model.sharing is None or not model.sharing.injection:
        return
    reasons = {
        f"reads a stream of (B, T, D), and that of {placement.kind} is {placement.stream_shape}": placement.streams,
        "reads a stream of (B, T, D), and altup has several": model.altup,
        "is of the layers of one stack, and chunks divide them": model.chunks,
    }
    for reason, found in reasons.items():
        if found is not None:
            raise SpecError("sharing.injection", reason)
    if model.sharing.random_depth is not None:
        try:
            random_depth.check(model, model.sharing)
        except SpecError as error:
            raise error.under("sharing") from None


def _check_recursion(model: ModelSpec) -> None:
    """Of a loop whose turns choose tokens."""
    if model.sharing is None or model.sharing.recursion is None:
        return
    for name in ("unet_skips", "per_layer_embeddings", "layer_loss"):
        if getattr(model, name):
            raise SpecError("sharing.recursion", f"cannot be combined with {name}, which is of all tokens")
    turns = model.sharing.turns(model.n_layers)
    for block in model.layers[turns.start : turns.stop]:
        if block.depth_routing is not None:
            raise SpecError("sharing.recursion", "is of a block that has a router of its own (depth_routing)")
        for reason in _unrouted(model, block):
            raise SpecError("sharing.recursion", reason)


def _unrouted(model: ModelSpec, block: BlockSpec) -> Iterator[str]:
    """Why a block cannot run on some of the tokens; nothing where it can."""
    if model.visible != "causal" or model.encoder is not None:
        yield "is for causal models without an encoder"
    placement = block.norm_placement
    if placement.streams is not None:
        yield f"reads a stream of (B, T, D), and that of {placement.kind} is {placement.stream_shape}"
    for name in ("altup", "chunks", "value_embeddings", "mtp"):
        if getattr(model, name) is not None:
            yield f"cannot be combined with {name}, which is of all tokens"
    if any(layer.mixer.borrows for layer in model.layers):
        yield "cannot be combined with reuse_kv: layers would read keys of other tokens"
    if block.mixer.counts_places:
        yield f"leaves out tokens, whose places {block.mixer.kind} counts"
    for scheme, _ in block.mixer.positions():
        if not scheme.takes_places:
            yield f"needs positions that can be passed, and {scheme.kind} has distances only"
    if (reason := unlike_tokens(block, model.d_model)) is not None:
        yield f"is of a block that {reason}"


def _check_readers(blocks: Mapping[str, BlockSpec]) -> None:
    """Of position schemes that read queries."""
    for where, block in blocks.items():
        for scheme, _ in block.mixer.positions():
            if scheme.reads_queries and not block.mixer.gives_queries:
                reason = f"{scheme.kind} reads queries, which {block.mixer.kind} does not hand over: use attention"
                raise SpecError(f"{where}.mixer.position", reason)


def _check_values(blocks: Mapping[str, BlockSpec]) -> None:
    """Of value_residual."""
    shapes = [(where, block.mixer.shared_values) for where, block in blocks.items()]
    sharing = [(where, shape) for where, shape in shapes if shape is not None]
    for where, (heads, features) in sharing:
        if (heads, features) != sharing[0][1]:
            model = "{} heads of {} features".format(*sharing[0][1])
            reason = f"its values are {heads} heads of {features} features and those of {sharing[0][0]} {model}"
            raise SpecError(f"{where}.mixer", f"{reason}: value_residual cannot mix them")
