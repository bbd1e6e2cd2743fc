"""The encoder of an encoder-decoder model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, PositiveInt, field_validator

from zoo.block_spec import BlockSpec
from zoo.compatibility.traits import NONE, Ground, Grounds, Operation, Operations
from zoo.errors import SpecError
from zoo.features import Feature, Model
from zoo.settings.axis import Spec
from zoo.settings.edits import SpecJson, expand, merge

MAX_LAYERS = 10_000

Names = Annotated[tuple[str, ...], Field(strict=False)]


class EncoderSpec(Feature):
    """A bidirectional stack of blocks. The decoder attends to its output through `block.cross`.

    The encoder shares the decoder's d_model, token table and embedding settings, but has its own position tables.
    `block` edits the decoder's base block, `blocks` edit the result; layers are named as in the decoder.
    """

    needs: ClassVar[Grounds] = NONE
    breaks: ClassVar[Grounds] = frozenset({Ground.CAUSAL})
    supports: ClassVar[Operations] = frozenset({Operation.SHARDING})

    n_layers: Annotated[PositiveInt, Field(le=MAX_LAYERS)] = 4
    """Number of encoder layers."""
    block: SpecJson = Field(default={})
    """Edits of the decoder's base block, by path, for all blocks of the encoder: `{mixer.window: 128}`."""
    blocks: dict[str, SpecJson] = Field(default={})
    """Named edits of the encoder's block, for `first` and `pattern`."""
    first: Names = ()
    """Names of the encoder's first blocks, before `pattern` begins; `block` is the base block."""
    pattern: Annotated[Names, Field(min_length=1)] = ("block",)
    """Names of blocks, repeated over the layers after `first`; `block` is the base block."""
    final_norm: bool | None = None
    """Whether the encoder ends with a norm; null: only if its last block does not already normalise the stream, as
    post-norm does."""

    @property
    def has_norms(self) -> bool:
        return False

    @field_validator("block", mode="before")
    @classmethod
    def _nested(cls, block: Any) -> Any:
        return expand(block) if isinstance(block, Mapping) else block

    def check(self, model: Model) -> None:
        if model.visible == "all":
            raise SpecError("", "cannot be combined with visible: all, which makes the model itself an encoder")

    def settings(self, decoder: Spec, block: BlockSpec, features: Iterable[str]) -> dict[str, Any]:
        """Settings of the encoder as a model of its own, including those shared with the decoder. block: the decoder's
        base block. features: names of the decoder's features, which the encoder does not have."""
        own = {*EncoderSpec.model_fields, *features}
        shared = {name: getattr(decoder, name) for name in type(decoder).model_fields if name not in own}
        base = merge(block.model_copy(update={"cross": None}).model_dump(), self.block)
        return {**shared, **dict(self), "block": base, "visible": "all", "head_transform": None}

    def shrunk(self, small: SpecJson, alike: bool) -> SpecJson:
        return small | {"n_layers": 2}
