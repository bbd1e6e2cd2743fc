"""What a model is: a frozen, typed list of blocks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from zoo.altup import AltUp
from zoo.axis import Spec, is_off
from zoo.block_spec import BlockSpec
from zoo.chunks import Chunks
from zoo.edits import Edits, SpecJson, expand, merge
from zoo.errors import SpecError
from zoo.explain import explain
from zoo.facts import Dropout, Fact, Features, Tried, what_computes
from zoo.ffns._activations import PlainActivation
from zoo.identity import digest_of, identity_of, spelled_out
from zoo.init import InitSpec
from zoo.kinds import MAX_LAYERS, EncoderSpec, Names, check_kind, check_layers, check_names, encoder_of
from zoo.mixers._cross import CrossAttention
from zoo.mtp import MultiTokenPrediction
from zoo.origin import Origin, as_loaded
from zoo.per_layer_embeddings import PerLayerEmbeddings
from zoo.positions import Position
from zoo.sharing import Sharing
from zoo.site import Sight
from zoo.value_embeddings import ValueEmbeddings

BASE = "block"


class ModelSpec(Spec):
    """A language model: embed → blocks → norm → head. With an encoder, its blocks attend to the encoder's output too.

    The first layers are the blocks named in `first`; after them layer i is `pattern[i mod len(pattern)]`. `block` names
    the base block; every other name is in `blocks`, as edits of the base block.
    """

    vocab_size: Annotated[PositiveInt, Fact.SIZE] = 256
    d_model: Features = 128
    n_layers: Annotated[PositiveInt, Field(le=MAX_LAYERS), Fact.SIZE] = 4
    block: Annotated[BlockSpec, Fact.LAYERS] = BlockSpec()
    blocks: Annotated[dict[str, SpecJson], Fact.LAYERS, Tried()] = Field(default={})
    first: Annotated[Names, Fact.LAYERS, Tried()] = ()
    pattern: Annotated[Names, Field(min_length=1), Fact.LAYERS, Tried()] = (BASE,)
    sharing: Annotated[
        Sharing | None,
        Fact.DECODER,
        Tried(
            {"blocks": 2, "order": "sequence"},
            {"injection": True, "state_std": 0.5, "coda": 1},
            {"recursion": {"alpha": 0.5}, "prelude": 1},
        ),
    ] = Field(default=None, exclude_if=is_off)
    """Which layers share weights; null for none."""
    final_norm: bool | None = None
    """A norm before the head; null means: unless the last block leaves the stream normalised, as post-norm does."""
    tie_embeddings: bool = True
    head_bias: bool = False
    embedding_dim: Annotated[PositiveInt | None, Fact.WIDTH, Tried(14)] = None
    """Width of the token table, with a projection to d_model (ALBERT, arXiv:1909.11942); null for d_model."""
    embedding_scale: Annotated[PositiveFloat | Literal["sqrt_d_model"], Fact.SCALE] = 1.0
    """Factor on the embedded tokens; √d_model as in Vaswani et al. 2017 §3.4 and Gemma."""
    embedding_norm: bool = False
    """A norm after the embedding (BLOOM, arXiv:2211.05100)."""
    embedding_dropout: Dropout = 0.0
    """Dropout on the input of the first block, during training."""
    logit_scale: Annotated[PositiveFloat, Fact.SCALE] = 1.0
    """Factor on the logits (Cohere; Granite divides by its logits_scaling)."""
    logit_gain: bool = Field(default=False, exclude_if=is_off)
    """A learned factor on each token's logit, from one, kept √D times smaller (s_z of nGPT, arXiv:2410.01131)."""
    unit_weights: Annotated[bool, Field(exclude_if=is_off), Fact.TRAINING, Tried()] = False
    """Normalise the vectors of every matrix, at initialisation and after every training step (see `zoo.sphere`). A tied
    table then starts larger than `zoo.init` says, unless a gain makes up for it: nGPT's is not tied."""
    final_softcap: Annotated[PositiveFloat | None, Tried(200.0)] = None
    """c · tanh(logits / c) (Gemma 2, arXiv:2408.00118)."""
    z_loss: Annotated[NonNegativeFloat, Fact.TRAINING, Tried(0.01)] = 0.0
    """Weight of mean(logsumexp(logits)²) in the training objective (PaLM, arXiv:2204.02311, uses 1e-4)."""
    unet_skips: Annotated[bool, Field(exclude_if=is_off), Fact.DECODER] = False
    """Add the output of each layer of the lower half to the input of its mirror image above (`zoo.skips`)."""
    value_embeddings: Annotated[ValueEmbeddings | None, Fact.DECODER, Tried({"tables": 1})] = Field(
        default=None, exclude_if=is_off
    )
    """Token tables that add to the values of the first and the last layers."""
    altup: Annotated[AltUp | None, Fact.DECODER, Tried({"streams": 3, "active": 1})] = Field(
        default=None, exclude_if=is_off
    )
    """Several streams, with each layer running on one of them; null for a single stream."""
    per_layer_embeddings: Annotated[PerLayerEmbeddings | None, Fact.DECODER, Tried({"features": 5})] = Field(
        default=None, exclude_if=is_off
    )
    """A token embedding table of its own for each layer; null for none."""
    chunks: Annotated[Chunks | None, Fact.DECODER, Tried({"ratio": 2.5, "encoder_layers": 1, "decoder_layers": 1})] = (
        Field(default=None, exclude_if=is_off)
    )
    """Chunks of tokens on which the layers between the first and the last run; null for tokens in all layers."""
    layer_loss: Annotated[NonNegativeFloat, Field(exclude_if=is_off), Fact.TRAINING, Fact.DECODER, Tried(0.3)] = 0.0
    """Weight, in the training objective, of the mean loss of all layers but the last, each of which predicts by the
    model's own final norm and head (Al-Rfou et al. 2018, arXiv:1808.04444, who drop the lower ones with time)."""
    mtp: Annotated[MultiTokenPrediction | None, Fact.DECODER, Tried({"depth": 2, "final_norm": "own"})] = None
    """Modules that predict further tokens while training."""
    init: Annotated[InitSpec, Fact.TRAINING, Tried()] = InitSpec()
    visible: Annotated[Sight, Fact.DECODER] = Field(default="causal", exclude_if=lambda sight: sight == "causal")
    """What a token sees: itself and what comes before it (`causal`); all of the text (`all`, an encoder, BERT,
    arXiv:1810.04805); or what comes before it and all of a prefix, whose length each pass is told (`prefix`, Raffel et
    al. 2019, arXiv:1910.10683 §3.2.1)."""
    encoder: Annotated[EncoderSpec | None, Fact.DECODER, Tried({"n_layers": 2})] = Field(
        default=None, exclude_if=is_off
    )
    """An encoder of a second text, which the model attends to (Vaswani et al. 2017, arXiv:1706.03762)."""
    token_types: Annotated[PositiveInt | None, Fact.DECODER] = Field(default=None, exclude_if=is_off)
    """Number of token types, each with a learned vector that is added to the embedding (BERT's segments)."""
    head_transform: Annotated[PlainActivation | None, Fact.DECODER, Tried("gelu")] = Field(
        default=None, exclude_if=is_off
    )
    """A dense layer, this activation and a norm before the head (BERT)."""

    @field_validator("blocks")
    @classmethod
    def _nested(cls, blocks: dict[str, SpecJson]) -> dict[str, SpecJson]:
        return {name: expand(edits) for name, edits in blocks.items()}

    @model_validator(mode="after")
    def _buildable(self) -> Self:
        check_names(self, BASE)
        for name in (BASE, *self.blocks):
            self.named(name)
        return self

    def written(self, name: str) -> BlockSpec:
        """The block of this name, as its settings were given. Raises SpecError with the path of the edit that is
        wrong."""
        if name == BASE:
            return self.block
        try:
            return BlockSpec.model_validate(merge(self.block.model_dump(), self.blocks[name]))
        except ValidationError as error:
            raise explain(error, BlockSpec)[0].under(f"blocks.{name}") from None

    def named(self, name: str) -> BlockSpec:
        """The block of this name, with its numbers. Raises SpecError."""
        block = self.written(name)
        if self.encoder is not None and block.cross is None:
            block = block.model_copy(update={"cross": CrossAttention()})
        try:
            return block.resolve(self.d_model)
        except SpecError as error:
            raise error.under(BASE if name == BASE else f"blocks.{name}") from None

    @property
    def layer_names(self) -> tuple[str, ...]:
        """The name of every layer's block."""
        after = max(0, self.n_layers - len(self.first))
        return (*self.first[: self.n_layers], *itertools.islice(itertools.cycle(self.pattern), after))

    @property
    def layer_paths(self) -> tuple[str, ...]:
        """Where every layer's block is written."""
        return tuple(BASE if name == BASE else f"blocks.{name}" for name in self.layer_names)

    @property
    def block_of_each(self) -> tuple[int, ...]:
        """Which of the model's blocks each layer is."""
        return self.sharing.block_of_each(self.n_layers) if self.sharing else tuple(range(self.n_layers))

    @property
    def layers(self) -> tuple[BlockSpec, ...]:
        """The resolved block of every layer."""
        names = self.layer_names
        named = {name: self.named(name) for name in dict.fromkeys(names)}
        return tuple(named[name] for name in names)

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        used = self._used()
        check_layers(self, used)
        check_kind(self, used)
        return self

    def _used(self) -> dict[str, BlockSpec]:
        """The resolved blocks that layers are made of, by path."""
        return {path: self.named(path.removeprefix("blocks.")) for path in dict.fromkeys(self.layer_paths)}

    @property
    def cautions(self) -> tuple[str, ...]:
        """What is legal about the model and hardly wanted, each with its path."""
        found = {f"{where}.mixer": block.mixer.caution for where, block in self._used().items()}
        return tuple(f"{where}: {reason}" for where, reason in found.items() if reason is not None)

    @property
    def couples_rows(self) -> str | None:
        """What makes training on one row of a batch depend on the others; None where nothing does."""
        models = [self] if self.encoder_spec is None else [self, self.encoder_spec]
        reasons = (block.ffn.couples_rows for model in models for block in model.layers)
        return next((reason for reason in reasons if reason is not None), None)

    @property
    def encoder_spec(self) -> ModelSpec | None:
        """The encoder as a model of its own, all that it shares with the decoder included."""
        return encoder_of(self)

    @property
    def positions(self) -> tuple[tuple[Position, int], ...]:
        """Position schemes in use, with the number of heads, each once, in the order of the layers.

        An absolute scheme is added to the stream, so that heads do not tell two of it apart: its number is 0.
        """
        pairs = (pair for layer in self.layers for pair in layer.mixer.positions())
        return tuple(dict.fromkeys((scheme, 0 if scheme.absolute else heads) for scheme, heads in pairs))

    @property
    def has_final_norm(self) -> bool:
        if self.final_norm is None:
            beside = self.altup is not None or self.per_layer_embeddings is not None
            return beside or not self.layers[-1].normalises_stream
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
        """The preset that it was loaded as, edited since or not; None for one that was not loaded."""
        return None

    def from_preset(self, origin: Origin | None) -> Self:
        vars(self)["origin"] = origin  # as a cached property keeps it
        return self

    def model_copy(self, **changes: Any) -> Self:
        return super().model_copy(**changes).from_preset(None)

    def __repr__(self) -> str:
        if self.origin is None:
            return super().__repr__()
        return as_loaded(self.origin.preset, parse(self.origin.model), self)

    __str__ = __repr__

    def dump(self) -> SpecJson:
        """Plain data: `parse(spec.dump()) == spec`."""
        return self.model_dump(mode="json")

    def resolve(self) -> SpecJson:
        """Plain data that says the architecture alone: every layer spelled out, every default a number."""
        return spelled_out(self, lambda part: part.model_dump(mode="json"))

    def identity(self) -> SpecJson:
        """The same as `resolve`, without settings that have their first default (see `zoo.identity`)."""
        return spelled_out(self, identity_of)

    def computation(self) -> SpecJson:
        """As `resolve`, without what shows in training alone: equal for models that compute the same once trained."""
        return spelled_out(self, what_computes)

    @property
    def table_width(self) -> int:
        """Features of the token table."""
        return self.embedding_dim or self.d_model

    @property
    def digest(self) -> str:
        """20 hex digits that two spellings of one architecture share."""
        return digest_of(self.identity())


def parse(data: Any) -> ModelSpec:
    """A spec from plain data. Raises SpecError, which says where and why."""
    try:
        return ModelSpec.model_validate(expand(data) if isinstance(data, Mapping) else data)
    except ValidationError as error:
        raise explain(error, ModelSpec)[0] from None
