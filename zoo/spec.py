"""Spec of a model: a frozen, typed list of blocks; and the longest text that the model can read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar, Self

from pydantic import model_validator

from zoo.block_spec import BlockSpec
from zoo.compatibility.parts import check_layers
from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.errors import SpecError, under
from zoo.features import Feature, Subset
from zoo.mixers._cross import CrossAttention
from zoo.model_settings import BASE, ModelSettings
from zoo.positions import Position
from zoo.settings.axis import Spec
from zoo.settings.edits import Edits, SpecJson, expand, merge
from zoo.settings.explain import checked
from zoo.settings.field_tags import Fact, names_with, what_computes, written_out
from zoo.settings.identity import Origin, as_loaded, digest_of, identity_of
from zoo.settings.plugged_features import with_features
from zoo.site import PartCost, matmul_cost


@with_features("zoo.features", Feature)
class ModelSpec(ModelSettings):
    """A language model: embed → blocks → norm → head. With an encoder, its blocks attend to the encoder's output too.

    The first layers are the blocks named in `first`; the i-th layer after them is `pattern[i mod len(pattern)]`.
    `block` names the base block; every other name is in `blocks`, as edits of the base block.
    """

    supports: ClassVar[Operations] = EVERY_OPERATION

    @model_validator(mode="after")
    def _buildable(self) -> Self:
        if BASE in self.blocks:
            raise SpecError(f"blocks.{BASE}", f"'{BASE}' is the base block: edit it as {BASE}.…")
        for field in ("first", "pattern"):
            for name in getattr(self, field):
                if name != BASE and name not in self.blocks:
                    known = ", ".join([BASE, *self.blocks])
                    raise SpecError(field, f"unknown block '{name}': one of {known}")
        for name in (BASE, *self.blocks):
            self.named(name)
        check_layers(self, self._used(), self.layer_paths)
        _ = self.encoder_spec  # raises SpecError if the encoder is invalid
        return self

    def written(self, name: str) -> BlockSpec:
        """The block of this name, before defaults are resolved. Raises SpecError with the path of the invalid edit."""
        if name == BASE:
            return self.block
        with under(f"blocks.{name}"):
            return checked(BlockSpec, merge(self.block.model_dump(), self.blocks[name]))

    def named(self, name: str) -> BlockSpec:
        """The resolved block of this name. Raises SpecError."""
        if name not in self.resolved:
            block = self.written(name)
            if self.encoder is not None and block.cross is None:
                block = block.model_copy(update={"cross": CrossAttention()})
            with under(BASE if name == BASE else f"blocks.{name}"):
                self.resolved[name] = block.resolve(self.d_model)
        return self.resolved[name]

    @cached_property
    def resolved(self) -> dict[str, BlockSpec]:
        """Blocks that `named` has resolved, by name."""
        return {}

    @property
    def layer_names(self) -> tuple[str, ...]:
        """The name of every layer's block."""
        after = max(0, self.n_layers - len(self.first))
        return (*self.first[: self.n_layers], *itertools.islice(itertools.cycle(self.pattern), after))

    @property
    def layer_paths(self) -> tuple[str, ...]:
        """The path in the spec of every layer's block."""
        return tuple(BASE if name == BASE else f"blocks.{name}" for name in self.layer_names)

    @property
    def block_of_each(self) -> tuple[int, ...]:
        """Index of each layer's block; layers that share weights have the same."""
        return self.sharing.block_of_each(self.n_layers) if self.sharing else tuple(range(self.n_layers))

    @cached_property
    def layers(self) -> tuple[BlockSpec, ...]:
        """The resolved block of every layer."""
        return tuple(map(self.named, self.layer_names))

    @property
    def subsets(self) -> tuple[Subset | None, ...]:
        """The choice of tokens that each layer runs on; None for all."""
        features = list(self.features.values())
        of_features = ([feature.subset(self, layer) for feature in features] for layer in range(self.n_layers))
        pairs = zip(of_features, self.layers, strict=True)
        return tuple(next(filter(None, chosen), layer.depth_routing) for chosen, layer in pairs)

    def _used(self) -> dict[str, BlockSpec]:
        """The resolved blocks that layers use, by path."""
        return {path: self.named(path.removeprefix("blocks.")) for path in dict.fromkeys(self.layer_paths)}

    @property
    def cautions(self) -> tuple[str, ...]:
        """Warnings about valid but probably unintended settings of the model, each with its path."""
        found = {f"{where}.mixer": block.mixer.caution for where, block in self._used().items()}
        return tuple(f"{where}: {reason}" for where, reason in found.items() if reason is not None)

    @property
    def couples_rows(self) -> str | None:
        """Reason why training on one row of a batch depends on the others; None where nothing does."""
        models = [self] if self.encoder_spec is None else [self, self.encoder_spec]
        reasons = [block.ffn.couples_rows for model in models for block in model.layers]
        reasons += [feature.couples_rows for feature in self.features.values()]
        return next((reason for reason in reasons if reason is not None), None)

    @cached_property
    def encoder_spec(self) -> ModelSpec | None:
        """The encoder as a spec of its own, including what it shares with the decoder; None without one. Raises
        SpecError."""
        if self.encoder is None:
            return None
        with under("encoder"):
            return checked(type(self), self.encoder.settings(self, self.block, self.features))

    @cached_property
    def features(self) -> dict[str, Feature]:
        """Features around the layers and between them, keyed by setting."""
        values = {name: written_out(self, name) for name in type(self).model_fields}
        return {name: value for name, value in values.items() if isinstance(value, Feature)}

    @property
    def read_out(self) -> PartCost:
        """FLOPs of the head for one token; its parameters are not counted here."""
        transform = 0 if self.head_transform is None else self.d_model * self.d_model
        return matmul_cost(0, self.vocab_size * self.table_width + self.factor + transform)

    @property
    def factor(self) -> int:
        """Weights of one projection between a factorised token table and the stream; 0 if it is not factorised."""
        return 0 if self.embedding_dim is None else self.embedding_dim * self.d_model

    @property
    def positions(self) -> tuple[tuple[Position, int], ...]:
        """Distinct position schemes in use, each with its number of heads, in the order of the layers.

        An absolute scheme is added to the stream and does not depend on heads: its number is 0.
        """
        pairs = (pair for layer in self.layers for pair in layer.mixer.positions())
        return tuple(dict.fromkeys((scheme, 0 if scheme.absolute else heads) for scheme, heads in pairs))

    @property
    def ends_normalised(self) -> bool:
        """Whether the last layer leaves the stream normalised, and nothing writes to it after that."""
        written = any(feature.writes_after_layers for feature in self.features.values())
        return self.layers[-1].normalises_stream and not written

    @property
    def has_final_norm(self) -> bool:
        if self.final_norm is None:
            return not self.ends_normalised
        return self.final_norm

    @property
    def embedding_factor(self) -> float:
        return math.sqrt(self.d_model) if self.embedding_scale == "sqrt_d_model" else self.embedding_scale

    @property
    def has_embedding_norm(self) -> bool:
        return self.embedding_norm or self.layers[0].norm_placement.normalises_embedding

    def edit(self, edits: Edits) -> ModelSpec:
        """This spec with edits by path. Raises SpecError."""
        return parse(merge(self.dump(), edits)).from_preset(self.origin)

    @cached_property
    def origin(self) -> Origin | None:
        """The preset that the spec was loaded from, even if edited since; None if it was not loaded."""
        return None

    def from_preset(self, origin: Origin | None) -> Self:
        vars(self)["origin"] = origin  # where a cached property keeps its value
        return self

    def model_copy(self, **changes: Any) -> Self:
        made = super().model_copy(**changes)
        for name in FOLLOWING:
            vars(made).pop(name, None)
        return made.from_preset(None)

    def __repr__(self) -> str:
        if self.origin is None:
            return super().__repr__()
        return as_loaded(self.origin.preset, parse(self.origin.model), self)

    __str__ = __repr__

    def dump(self) -> SpecJson:
        """Plain data: `parse(spec.dump()) == spec`."""
        return self.model_dump(mode="json")

    def resolve(self) -> SpecJson:
        """Plain data of the architecture alone: every layer spelled out, every default a number."""
        return _spelled_out(self, lambda part: part.model_dump(mode="json"))

    def identity(self) -> SpecJson:
        """The same as `resolve`, without settings at their original default (see `zoo.settings.identity`)."""
        return _spelled_out(self, identity_of)

    def computation(self) -> SpecJson:
        """The same as `resolve`, without settings that affect training alone: equal for models that compute the same
        once trained."""
        return _spelled_out(self, what_computes)

    @property
    def table_width(self) -> int:
        """Width of the token table."""
        return self.embedding_dim or self.d_model

    @cached_property
    def digest(self) -> str:
        """20 hex digits, equal for all spellings of one architecture."""
        return digest_of(self.identity())


FOLLOWING = tuple(
    name for cls in ModelSpec.__mro__ for name, value in vars(cls).items() if isinstance(value, cached_property)
)
"""Cached properties, derived from settings that never change in a spec; a copy computes them anew."""


def parse(data: Any) -> ModelSpec:
    """A spec from plain data. Raises SpecError with the path and the reason."""
    return checked(ModelSpec, expand(data) if isinstance(data, Mapping) else data)


def _spelled_out(model: ModelSpec, dump: Callable[[Spec], SpecJson]) -> SpecJson:
    """The model with every layer in full and every default a number. dump: converts a part to plain data."""
    has_norms = model.has_final_norm or model.has_embedding_norm or model.head_transform is not None
    has_norms = has_norms or any(feature.has_norms for feature in model.features.values())
    has_norms = has_norms or model.layers[-1].norm_placement.closes_with_norms
    spelled = {"n_layers", *names_with(type(model), Fact.LAYERS)}
    encoder = {} if model.encoder_spec is None else {"encoder": _spelled_out(model.encoder_spec, dump)}
    layers = model.layers
    dumped = {id(layer): dump(layer) for layer in layers}  # layers of one name are one object
    return {
        **{name: value for name, value in dump(model).items() if name not in spelled},
        "layers": [dumped[id(layer)] for layer in layers],
        "norm": dump(model.block.norm) if has_norms else None,
        "final_norm": model.has_final_norm,
        "embedding_norm": model.has_embedding_norm,
        "embedding_scale": model.embedding_factor,
        "embedding_dim": model.table_width,
        **encoder,
    }


def longest_context(spec: ModelSpec) -> int | None:
    """The shorter `longest_text` of decoder and encoder; None for any number of tokens."""
    stacks = [spec] if spec.encoder_spec is None else [spec, spec.encoder_spec]
    return min((end for end in map(longest_text, stacks) if end is not None), default=None)


def depends_on_length(spec: ModelSpec) -> bool:
    """Whether making a row longer, even by padding, changes the results for its first tokens."""
    return any(scheme.by_length for scheme, _ in spec.positions)


def longest_text(spec: ModelSpec) -> int | None:
    """Most tokens that one stack can read, limited by position tables and mixers; None for any number."""
    ends = [scheme.longest for scheme, _ in spec.positions] + [layer.mixer.longest for layer in spec.layers]
    return min((end for end in ends if end is not None), default=None)


def too_short(spec: ModelSpec, context: int) -> str | None:
    """Why a model cannot read texts of `context` tokens; None if it can, or has an encoder, since what that reads
    depends on the objective."""
    most = longest_text(spec) if spec.encoder_spec is None else None
    return None if most is None or most >= context else f"reads {most} tokens at most, not {context}"
