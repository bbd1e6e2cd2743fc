"""Settings of a model. Properties derived from them are in `zoo.spec`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, field_validator

from zoo.block_spec import BlockSpec
from zoo.compatibility.traits import ALL_BUT_TRANSFER, BY_TOKEN, EVERY_OPERATION, Operation
from zoo.features.altup import AltUp
from zoo.features.chunks import Chunks
from zoo.features.encoder import MAX_LAYERS, EncoderSpec, Names
from zoo.features.first_stream import FirstStream
from zoo.features.layer_gains import LayerGains
from zoo.features.layer_loss import LayerLoss
from zoo.features.mtp import MultiTokenPrediction
from zoo.features.per_layer_embeddings import PerLayerEmbeddings
from zoo.features.sharing import Sharing
from zoo.features.unet_skips import UNetSkips
from zoo.features.value_embeddings import ValueEmbeddings
from zoo.ffns._activations import PlainActivation
from zoo.init import InitSpec
from zoo.settings.axis import Spec, is_off
from zoo.settings.edits import SpecJson, expand
from zoo.settings.field_tags import MOST, As, Dropout, Fact, Features, Supports, ValuesInTests
from zoo.site import Mask

BASE = "block"


class ModelSettings(Spec):
    """Settings of `ModelSpec`."""

    vocab_size: Annotated[PositiveInt, MOST, Fact.SIZE] = 256
    """V: vocabulary size; in a study, that of the data."""
    d_model: Features = 128
    """D: features of the residual stream."""
    n_layers: Annotated[PositiveInt, Field(le=MAX_LAYERS), Fact.SIZE] = 4
    """L: number of layers, including those in `first`."""
    block: Annotated[BlockSpec, Fact.LAYERS] = BlockSpec()
    """Base block, which `blocks` edit: `block.mixer.window`, `block.ffn.d_ff`."""
    blocks: Annotated[dict[str, SpecJson], Fact.LAYERS, ValuesInTests()] = Field(default={})
    """Named edits of `block`, for `first` and `pattern`: `{local: {mixer.window: 128}}`."""
    first: Annotated[Names, Fact.LAYERS, ValuesInTests()] = ()
    """Names of the first layers' blocks, before `pattern` begins; `block` is the base block."""
    pattern: Annotated[Names, Field(min_length=1), Fact.LAYERS, ValuesInTests()] = (BASE,)
    """Names of blocks, repeated over the layers after `first`: `[local, local, block]`."""
    sharing: Annotated[
        Sharing | None,
        ValuesInTests(
            {"blocks": 2, "order": "sequence"},
            {"injection": True, "state_std": 0.5, "coda": 1},
            {"recursion": {"alpha": 0.5}, "prelude": 1},
        ),
    ] = Field(default=None, exclude_if=is_off)
    """Weight sharing between layers; null for none."""
    final_norm: Annotated[bool | None, Supports(*EVERY_OPERATION)] = None
    """Norm before the head; null for one unless the last block already normalises the stream, as post-norm does."""
    tie_embeddings: bool = True
    """Whether the head uses the token table as its matrix."""
    head_bias: Annotated[bool, Supports(*ALL_BUT_TRANSFER, *BY_TOKEN)] = False
    """Whether the logits have a learned bias, (V,)."""
    embedding_dim: Annotated[PositiveInt | None, Fact.WIDTH, ValuesInTests(14), Supports(*ALL_BUT_TRANSFER)] = None
    """Width of the token table, with a projection to d_model (ALBERT, arXiv:1909.11942); null for d_model."""
    embedding_scale: Annotated[PositiveFloat | Literal["sqrt_d_model"], Fact.SCALE] = 1.0
    """Factor on the embedded tokens; √d_model as in Vaswani et al. 2017 §3.4 and Gemma."""
    embedding_norm: Annotated[bool, Supports(*EVERY_OPERATION)] = False
    """A norm after the embedding (BLOOM, arXiv:2211.05100)."""
    embedding_dropout: Dropout = 0.0
    """Dropout on the input of the first block, during training."""
    logit_scale: Annotated[PositiveFloat, Fact.SCALE] = 1.0
    """Factor on the logits (Cohere; Granite divides by its logits_scaling)."""
    logit_gain: Annotated[bool, Field(exclude_if=is_off), Supports(*BY_TOKEN)] = False
    """Learned factor on each token's logit, initially 1, stored divided by √D (s_z of nGPT, arXiv:2410.01131)."""
    unit_weights: Annotated[
        bool, Field(exclude_if=is_off), Fact.TRAINING, ValuesInTests(), Supports(Operation.LORA)
    ] = False
    """Normalise the vectors of every matrix, at initialisation and after every training step (`zoo.init.project`). A
    tied table then starts larger than `zoo.init` says, unless a gain compensates; nGPT's head is untied."""
    final_softcap: Annotated[PositiveFloat | None, ValuesInTests(200.0), Supports(*EVERY_OPERATION)] = None
    """c · tanh(logits / c) (Gemma 2, arXiv:2408.00118)."""
    z_loss: Annotated[NonNegativeFloat, Fact.TRAINING, ValuesInTests(0.01), Supports(*EVERY_OPERATION)] = 0.0
    """Weight of mean(logsumexp(logits)²) in the training objective (PaLM, arXiv:2204.02311, uses 1e-4)."""
    unet_skips: Annotated[bool, Field(exclude_if=is_off), As(lambda _: UNetSkips())] = False
    """Add the output of each layer of the lower half to the input of its mirror image above."""
    first_stream: Annotated[bool, Field(exclude_if=is_off), As(lambda _: FirstStream())] = False
    """Add the stream that enters the first layer to what every other layer reads."""
    layer_gains: Annotated[bool, Field(exclude_if=is_off), As(lambda _: LayerGains())] = False
    """Multiply the stream by a learned number after each layer."""
    value_embeddings: Annotated[ValueEmbeddings | None, ValuesInTests({"tables": 1})] = Field(
        default=None, exclude_if=is_off
    )
    """Token tables that are added to the attention values of the first and the last layers; null for none."""
    altup: Annotated[AltUp | None, ValuesInTests({"streams": 3, "active": 1})] = Field(default=None, exclude_if=is_off)
    """Several residual streams, with each layer running on one of them (AltUp); null for a single stream."""
    per_layer_embeddings: Annotated[PerLayerEmbeddings | None, ValuesInTests({"features": 5})] = Field(
        default=None, exclude_if=is_off
    )
    """A token embedding table of its own for each layer; null for none."""
    chunks: Annotated[Chunks | None, ValuesInTests({"ratio": 2.5, "encoder_layers": 1, "decoder_layers": 1})] = Field(
        default=None, exclude_if=is_off
    )
    """Dynamic chunking: inner layers run on chunks of tokens; null to run all layers on tokens."""
    layer_loss: Annotated[
        NonNegativeFloat,
        Field(exclude_if=is_off),
        Fact.TRAINING,
        ValuesInTests(0.3),
        As(lambda weight: LayerLoss(weight=weight)),
    ] = 0.0
    """Weight in the training objective of the mean loss of all layers but the last (`zoo.features.layer_loss`)."""
    mtp: Annotated[MultiTokenPrediction | None, ValuesInTests({"depth": 2, "final_norm": "own"}, costly=True)] = None
    """Multi-token prediction: modules that predict further tokens in training; null for none."""
    init: Annotated[InitSpec, Fact.TRAINING, ValuesInTests()] = InitSpec()
    """Initial values of output projections and of a tied head."""
    visible: Mask = Field(default="causal", exclude_if=lambda kind: kind == "causal")
    """Attention mask: `causal`; `all`, bidirectional, for an encoder (BERT, arXiv:1810.04805); `prefix`, causal but
    bidirectional within a prefix, whose length is an input of each pass (Raffel et al. 2019, arXiv:1910.10683
    §3.2.1)."""
    encoder: Annotated[EncoderSpec | None, ValuesInTests({"n_layers": 2})] = Field(default=None, exclude_if=is_off)
    """Encoder of a second text, with cross-attention to it (Vaswani et al. 2017, arXiv:1706.03762); null for none."""
    token_types: Annotated[PositiveInt | None, Supports(*ALL_BUT_TRANSFER)] = Field(default=None, exclude_if=is_off)
    """Number of token types, each with a learned vector added to the embedding (BERT's segments); null for none."""
    head_transform: Annotated[PlainActivation | None, ValuesInTests("gelu"), Supports(*ALL_BUT_TRANSFER)] = Field(
        default=None, exclude_if=is_off
    )
    """Activation of a dense layer that, followed by a norm, comes before the head (BERT); null for none."""

    @field_validator("blocks")
    @classmethod
    def _nested(cls, blocks: dict[str, SpecJson]) -> dict[str, SpecJson]:
        return {name: expand(edits) for name, edits in blocks.items()}
