"""Features of a whole model: parts that act around and between its layers. One file per feature, or a plug-in.

A feature declares its needs and breaks (`zoo.compatibility.traits`), the operations it supports, its cost, its cache
size and how it shrinks, and builds a `FeatureLayer`, a part of the stack. `zoo.stack` runs the parts in the order of
their `shell`, and `zoo.costs` adds up the features' costs; neither knows any feature by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from zoo.block_spec import BlockSpec
from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import ALL, Claim, Grounds
from zoo.loss import Head
from zoo.settings.axis import Examples, Spec
from zoo.settings.edits import SpecJson
from zoo.site import ForwardPass, Mask, PartCost

Layers = Callable[[range, Tensor, ForwardPass, Sequence[LayerCache | None]], Tensor]
"""Runs some layers: layer indices, stream (B, T, D), pass and one cache per layer → (B, T, D)."""

NewCache = Callable[[int, int], LayerCache]
"""(layer index, batch size) → an empty cache of that layer."""


class Model(Protocol):
    """Properties of a model that its features may read."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def d_model(self) -> int: ...
    @property
    def n_layers(self) -> int: ...
    @property
    def block(self) -> BlockSpec: ...
    @property
    def layers(self) -> tuple[BlockSpec, ...]: ...
    @property
    def layer_names(self) -> tuple[str, ...]: ...
    @property
    def block_of_each(self) -> tuple[int, ...]: ...
    @property
    def visible(self) -> Mask: ...
    @property
    def token_types(self) -> int | None: ...
    @property
    def features(self) -> Mapping[str, Feature]: ...
    @property
    def read_out(self) -> PartCost: ...


class Subset(Protocol):
    """Subset of the tokens, or chunks of tokens, that a layer runs on."""

    @property
    def ratio(self) -> float:
        """Tokens of a text per token, or chunk, that the layer runs on."""

    def count(self, tokens: int) -> int:
        """Expected number of tokens, or chunks, that the layer runs on in a text of `tokens` tokens."""


class Table(NamedTuple):
    """A feature's token table: `rows` embeddings of `width` features."""

    rows: int
    width: int

    def parameters(self, tokens: int | None = None) -> int:
        """Number of parameters; with `tokens`, at most those in the rows that this many tokens read."""
        return (self.rows if tokens is None else min(tokens, self.rows)) * self.width


@dataclass(frozen=True)
class Predicting:
    """Inputs of a feature that adds to the training objective. embedded: (B, T, D). stream: (B, T, D), output of the
    last layer. targets: (B, T). count: number of scored targets. norm: the final norm. head_after(norm): a norm and the
    head as one. close: a layer's stream → (B, T, D)."""

    embedded: Tensor
    stream: Tensor
    targets: Tensor
    step: ForwardPass
    count: Tensor
    norm: nn.Module
    head_after: Callable[[nn.Module], Head]
    close: Callable[[Tensor], Tensor]


class Feature(Spec):
    """Spec of a feature. Subclasses declare `needs`, `breaks` and `supports`: the defaults conflict with every other
    feature and support no operation (`zoo.compatibility.support`)."""

    examples: ClassVar[Examples] = ({},)
    """Settings with which tests combine a plug-in with all other choices, in a model of d_model 24."""
    needs: ClassVar[Grounds] = ALL
    """Grounds that the feature relies on."""
    breaks: ClassVar[Grounds] = ALL
    """Grounds that other parts cannot rely on beside it."""
    writes_after_layers: ClassVar[bool] = False
    """Whether it changes the stream after a layer's residual, so that a post-norm no longer normalises the output."""

    @property
    def has_norms(self) -> bool:
        """Whether it may build norms of the model's kind (`new_norm`), which then belongs to the model's identity."""
        return True

    @property
    def couples_rows(self) -> str | None:
        """Reason why training on one row of a batch depends on the other rows; None if rows are independent."""
        return None

    def check(self, model: Model) -> None:
        """Feature-specific compatibility check. Raises SpecError if the model cannot have the feature."""

    def claims(self, path: str, model: Model) -> Iterator[Claim]:
        """Claims of the feature. path: its path in the model's spec."""
        yield Claim(path, self.needs, self.breaks)

    def build(self, model: Model) -> FeatureLayer | None:
        """The feature's part of the model; None if it has no module."""
        return None

    def cost(self, model: Model, context: int) -> PartCost:
        """Cost beyond the layers, per token of a forward pass over `context` tokens, without token tables."""
        return PartCost(0)

    def training_cost(self, model: Model, context: int, memory: int) -> PartCost:
        """One third of a training step's cost beyond three forward passes: work that evaluation does not do. memory:
        number of encoder tokens."""
        return PartCost(0)

    def pass_flops(self, model: Model, context: int) -> float:
        """FLOPs of training-only work per pass, independent of the batch size (see `Mixer.pass_flops`)."""
        return 0.0

    def closing_flops(self, model: Model) -> float:
        """FLOPs per token of merging several streams into the one that the head reads. `cost` includes them once; each
        further layer that is read out adds them again."""
        return 0.0

    def token_tables(self, model: Model) -> Sequence[Table]:
        """The feature's token tables: they count as embedding parameters and cost no FLOPs."""
        return ()

    def cache_elements(self, model: Model) -> int:
        """Numbers cached per sequence, beyond the layers' own caches: those that `FeatureLayer.new_cache` holds."""
        return 0

    def subset(self, model: Model, layer: int) -> Subset | None:
        """Subset of the tokens that a layer runs on; None for all tokens."""
        return None

    def least_layers(self, first: int, alike: bool) -> int:
        """Minimum number of layers of a shrunk model. first: layers before the pattern. alike: whether all layers are
        of one kind."""
        return first + 2

    def shrunk(self, small: SpecJson, alike: bool) -> SpecJson:
        """Feature settings of a shrunk model, as plain data. small: these settings with reduced widths. alike: whether
        all layers are of one kind."""
        return small


class FeatureLayer(nn.Module):
    """A part of the stack. Methods that a subclass does not override change nothing."""

    name: ClassVar[str]
    """Name of the module in the model and in its state dict."""
    shell: ClassVar[int]
    """Nesting depth: parts with a smaller number are closer to the layers, last before a layer and first after it."""
    reads_out: ClassVar[bool] = False
    """Whether it serves only the training objective, so that its modules are registered after the final norm."""

    def new_cache(self, batch: int, dtype: torch.dtype) -> LayerCache:
        """The part's empty cache for `batch` rows, which a pass has in `step.caches[self.name]`. Parts that remember
        nothing of earlier tokens do not override this."""
        raise NotImplementedError

    @property
    def remembers(self) -> bool:
        """Whether the part has a cache."""
        return type(self).new_cache is not FeatureLayer.new_cache

    def begin(self, embedded: Tensor, step: ForwardPass) -> None:
        """Called once per pass with the embedded tokens (B, T, D); state for the layers goes into `step.states`."""

    def before(self, x: Tensor, layer: int, step: ForwardPass) -> Tensor:
        """The stream entering a layer, as the layer reads it."""
        return x

    def around(self, layer: int, run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """The layer's output stream. `run` runs the layer."""
        return run(x)

    def after(self, x: Tensor, layer: int, step: ForwardPass) -> Tensor:
        """The stream leaving a layer, as the layers above read it."""
        return x

    def objective(self, given: Predicting) -> Iterator[Tensor]:
        """Weighted terms that the feature adds to the training objective."""
        yield from ()

    def gains_before_head(self) -> Iterator[str]:
        """Parameter names of norm gains, beside the model's own, that scale the input of a tied head."""
        yield from ()


class Streams(FeatureLayer):
    """A part that expands the stream into several, which the layers run on, and merges them at the end."""

    def open(self, x: Tensor) -> Tensor:
        """(B, T, D) embedded tokens → the streams."""
        raise NotImplementedError

    def close(self, x: Tensor) -> Tensor:
        """The streams → (B, T, D)."""
        raise NotImplementedError


class Runner(FeatureLayer):
    """A part that runs some of the layers itself. No other part acts around those layers."""

    own_streams: ClassVar[bool] = True
    """Whether the layers before, inside and after the runner each open and close a residual stream of their own; if
    not, all share one."""
    layers: range
    """Layers that the runner runs."""

    def takes(self, cached: bool) -> bool:
        """Whether it runs its layers in this pass; if not, the stack does."""
        return True

    def run(self, x: Tensor, step: ForwardPass, kept: Sequence[LayerCache | None], run: Layers) -> Tensor:
        """The stream after its layers. kept: its cache entries."""
        raise NotImplementedError

    def entries(self) -> int:
        """Number of its cache entries."""
        return 1

    def new_entries(self, new: NewCache, batch: int, dtype: torch.dtype) -> list[LayerCache]:
        """Its cache entries, empty. new: makes an empty cache of a layer."""
        raise NotImplementedError


def norm_parameters(model: Model, width: int | None = None) -> int:
    """Parameters of one of the model's norms over `width` features; None: d_model."""
    return model.block.norm.parameters(model.d_model if width is None else width)


def new_norm(model: Model) -> nn.Module:
    """A new norm of the model's kind, over d_model features."""
    return model.block.norm.build(model.d_model)
