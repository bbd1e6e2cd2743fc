"""Features of a whole model: what stands around its layers and between them. One file per feature.

A feature declares what it needs and breaks (`zoo.compatibility.traits`), which operations it supports, what it costs,
what it caches and how it shrinks, and builds a `FeatureLayer`, a part of the stream. `zoo.stack` runs the parts in the
order of their `shell`, and a model's costs are the sum of its features' (`zoo.costs`): neither knows them by name.
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
from zoo.settings.axis import Spec
from zoo.settings.edits import SpecJson
from zoo.site import ForwardPass, Mask, PartCost

Layers = Callable[[range, Tensor, ForwardPass, Sequence[LayerCache | None]], Tensor]
"""Runs some layers: their numbers, the stream (B, T, D), the pass and a cache for each → (B, T, D)."""

NewCache = Callable[[int, int], LayerCache]
"""An empty cache of a layer, by its number, for so many rows."""


class Model(Protocol):
    """The facts about a model that its features may ask for."""

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
    """A choice of tokens, or chunks of them, that a layer runs on in place of all."""

    @property
    def ratio(self) -> float:
        """Tokens of a text for each that the layer runs on."""

    def count(self, tokens: int) -> int:
        """Expected number of those that the layer runs on, in a text of `tokens`."""


class Table(NamedTuple):
    """A token table of a feature: so many rows, of so many features."""

    rows: int
    width: int

    def parameters(self, tokens: int | None = None) -> int:
        """All of them, or those in the rows that so many tokens read."""
        return (self.rows if tokens is None else min(tokens, self.rows)) * self.width


@dataclass(frozen=True)
class Predicting:
    """Inputs of a feature that adds to the training objective. embedded: (B, T, D); stream: (B, T, D), as it leaves
    the last layer; targets: (B, T). count: the targets that count. head_after: a norm and the head as one. close: what
    makes (B, T, D) of the stream."""

    embedded: Tensor
    stream: Tensor
    targets: Tensor
    step: ForwardPass
    count: Tensor
    norm: nn.Module
    head_after: Callable[[nn.Module], Head]
    close: Callable[[Tensor], Tensor]


class Feature(Spec):
    """Spec of a feature. `needs`, `breaks` and `supports` are to be declared: a feature that does not declare them is
    refused beside every other one, and by every operation (`zoo.compatibility.support`)."""

    needs: ClassVar[Grounds] = ALL
    """Grounds that it relies on."""
    breaks: ClassVar[Grounds] = ALL
    """Grounds that others cannot rely on beside it."""
    writes_after_layers: ClassVar[bool] = False
    """Whether it writes to the stream after the last layer, which is then not normalised by that layer's residual."""

    @property
    def has_norms(self) -> bool:
        """Whether it may have norms of the model's kind, which is then part of what a model is (`new_norm`)."""
        return True

    @property
    def couples_rows(self) -> str | None:
        """Reason why training on one row of a batch depends on the others; None where nothing does."""
        return None

    def check(self, model: Model) -> None:
        """Raise SpecError where the model cannot have it, for a reason of its own."""

    def claims(self, path: str, model: Model) -> Iterator[Claim]:
        """Claims of the feature. path: where the model has it."""
        yield Claim(path, self.needs, self.breaks)

    def build(self, model: Model) -> FeatureLayer | None:
        """Its part of the model; None where it has none."""
        return None

    def cost(self, model: Model, context: int) -> PartCost:
        """Per token of a forward pass over `context` tokens: what it adds to the layers. Tables are not counted."""
        return PartCost(0)

    def training_cost(self, model: Model, context: int, memory: int) -> PartCost:
        """A third of what a training step costs beyond three forward passes: work that evaluation does not do. memory:
        tokens of the encoder's."""
        return PartCost(0)

    def pass_flops(self, model: Model, context: int) -> float:
        """FLOPs of passes of its own, in training alone, however many rows there are (see `Mixer.pass_flops`)."""
        return 0.0

    def closing_flops(self, model: Model) -> float:
        """FLOPs per token of closing several streams into the one that the head reads, once more for each further layer
        that is read out. `cost` has them once."""
        return 0.0

    def token_tables(self, model: Model) -> Sequence[Table]:
        """Those that it has, which count as embedding and cost no FLOPs."""
        return ()

    def cache_elements(self, model: Model) -> int:
        """Numbers kept per sequence, beside what layers keep."""
        return 0

    def subset(self, model: Model, layer: int) -> Subset | None:
        """The choice of tokens that a layer runs on; None for all."""
        return None

    def least_layers(self, first: int, alike: bool) -> int:
        """Fewest layers of a small model with it. first: layers before the pattern. alike: whether all are of one
        kind."""
        return first + 2

    def shrunk(self, small: SpecJson, alike: bool) -> SpecJson:
        """Plain data of the feature in a small model. small: the same with its widths cut. alike: whether all layers
        are of one kind."""
        return small


class FeatureLayer(nn.Module):
    """A part of the stack. Whatever it does not override changes nothing."""

    name: ClassVar[str]
    """Name of the module in the model and its weights."""
    shell: ClassVar[int]
    """Parts of a smaller number are nearer to the layers: they act later before a layer, and sooner after it."""
    reads_out: ClassVar[bool] = False
    """Whether it serves the training objective alone, and comes after the final norm among the model's modules."""

    def begin(self, embedded: Tensor, step: ForwardPass) -> None:
        """Called once a pass with the embedded tokens (B, T, D); what layers need of them goes to `step.states`."""

    def before(self, x: Tensor, layer: int, step: ForwardPass) -> Tensor:
        """The stream as a layer reads it."""
        return x

    def around(self, layer: int, run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """The stream that leaves a layer, which `run` runs."""
        return run(x)

    def after(self, x: Tensor, layer: int, step: ForwardPass) -> Tensor:
        """The stream that leaves a layer, as those above it read it."""
        return x

    def objective(self, given: Predicting) -> Iterator[Tensor]:
        """Terms that it adds to the training objective, already weighted."""
        yield from ()

    def gains_before_head(self) -> Iterator[str]:
        """Names of gains, beside the model's own, that scale what a tied head reads."""
        yield from ()


class Streams(FeatureLayer):
    """A part that makes several streams of one, on which layers run, and one of them at the end."""

    def open(self, x: Tensor) -> Tensor:
        """(B, T, D) embedded tokens → the streams."""
        raise NotImplementedError

    def close(self, x: Tensor) -> Tensor:
        """The streams → (B, T, D)."""
        raise NotImplementedError


class Runner(FeatureLayer):
    """A part that runs some of the layers itself, around which no other part acts."""

    own_streams: ClassVar[bool] = True
    """Whether its layers have a stream of their own, opened before them and closed after them, and so those before
    and those after them; or all share one."""
    layers: range
    """Those that it runs."""

    def takes(self, cached: bool) -> bool:
        """Whether it runs them in this pass, or leaves them to the stack."""
        return True

    def run(self, x: Tensor, step: ForwardPass, kept: Sequence[LayerCache | None], run: Layers) -> Tensor:
        """The stream through its layers. kept: its entries of the cache."""
        raise NotImplementedError

    def entries(self) -> int:
        """Number of its entries in a cache."""
        return 1

    def new_entries(self, new: NewCache, batch: int, dtype: torch.dtype) -> list[LayerCache]:
        """Those entries, empty."""
        raise NotImplementedError


def norm_parameters(model: Model, width: int | None = None) -> int:
    """Parameters of one of the model's norms, over the stream unless told."""
    return model.block.norm.parameters(model.d_model if width is None else width)


def new_norm(model: Model) -> nn.Module:
    """One of the model's norms, over the stream."""
    return model.block.norm.build(model.d_model)
