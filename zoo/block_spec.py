"""Spec of a block: a mixer, an FFN, and how each joins the residual stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from zoo.block_features import BlockFeature
from zoo.block_features.canon import Canon
from zoo.block_features.depth_routing import DepthRouting
from zoo.block_features.gated_norm import GatedNorm
from zoo.block_features.laurel import Laurel
from zoo.compatibility.traits import EVERY_OPERATION, Claim, Ground, Operations
from zoo.errors import SpecError, under
from zoo.ffns import Ffn
from zoo.ffns.gated import SwiGLU
from zoo.mixers import Mixer
from zoo.mixers._cross import CrossAttention
from zoo.mixers.attention import Attention
from zoo.norms import Norm
from zoo.norms.rmsnorm import RMSNorm
from zoo.residuals import Residual
from zoo.residuals.placed import Pre
from zoo.settings.axis import Choice, Spec, is_off
from zoo.settings.field_tags import Dropout, Fact, Supports, ValuesInTests
from zoo.settings.plugged_features import with_features
from zoo.site import Mask, PartCost


@with_features("zoo.block_features", BlockFeature)
class BlockSpec(Spec):
    """One block: a mixer and an FFN, with the same kind of norm in the same placement.

    topology: `serial`, the FFN reads the stream after the mixer's update; `parallel`, both read the same normalised
    stream (GPT-J, PaLM); `parallel_two_norms`, each through a norm of its own (GPT-NeoX). dropout: on each branch's
    output in training.
    """

    supports: ClassVar[Operations] = EVERY_OPERATION

    norm: Annotated[Norm, Choice("zoo.norms")] = RMSNorm()
    """Norm of the block's residual branches; the base block's is also the model's final norm: `rmsnorm`."""
    norm_placement: Annotated[Residual, Choice("zoo.residuals")] = Pre()
    """Residual connection around mixer and FFN, and the placement of its norm: `pre`, `post`, `peri`."""
    mixer: Annotated[Mixer, Choice("zoo.mixers")] = Attention()
    """Token mixer: softmax attention, a linear or recurrent state, or none."""
    ffn: Annotated[Ffn, Choice("zoo.ffns")] = SwiGLU()
    """Position-wise feed-forward layer: dense, gated, a mixture of experts, or none."""
    topology: Literal["serial", "parallel", "parallel_two_norms"] = "serial"
    """Order of mixer and FFN: `serial`; `parallel`, both on one norm's output; `parallel_two_norms`, each on the output
    of its own norm."""
    dropout: Dropout = 0.0
    """Dropout on the output of each branch, in training."""
    stochastic_depth: Annotated[
        float, Field(ge=0, lt=1, exclude_if=is_off), Fact.TRAINING, ValuesInTests(0.001), Supports(*EVERY_OPERATION)
    ] = 0.0
    """p: probability that training drops a branch of the last layer from a row; layer l of L, counted from 0, has
    p · (l + 1)/L (Huang et al. 2016, arXiv:1603.09382)."""
    canon: Annotated[Canon | None, ValuesInTests({"width": 3}, {"before": ["mixer"]})] = Field(
        default=None, exclude_if=is_off
    )
    """Short convolutions on the inputs of the branches (Allen-Zhu 2025, arXiv:2512.17351)."""
    gated_norm: Annotated[GatedNorm | None, ValuesInTests({"rank": 5}, paired=False)] = Field(
        default=None, exclude_if=is_off
    )
    """A low-rank gate on the norm's output that a branch reads (Qiu et al. 2026, arXiv:2601.22966); null for none."""
    laurel: Annotated[Laurel | None, ValuesInTests({"rank": 5})] = Field(default=None, exclude_if=is_off)
    """A learned path alongside the residual around the mixer; null for none."""
    depth_routing: Annotated[DepthRouting | None, ValuesInTests({"capacity": 0.5})] = Field(
        default=None, exclude_if=is_off
    )
    """Mixture-of-Depths: the block runs on a share of the tokens, which it chooses; null for all tokens."""
    cross: CrossAttention | None = Field(default=None, exclude_if=is_off)
    """Cross-attention to the encoder, between mixer and FFN; null for its defaults if the model has an encoder."""

    @property
    def features(self) -> dict[str, BlockFeature]:
        """Block features other than mixer and FFN, keyed by setting."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: value for name, value in values.items() if isinstance(value, BlockFeature)}

    @property
    def norms(self) -> int:
        """Number of norms in the block's residual branches."""
        return self.norm_placement.norms * self.branches

    @property
    def branches(self) -> int:
        """Number of residual branches."""
        return self.has_mixer_residual + self.has_ffn_residual + (self.cross is not None)

    @property
    def normalises_stream(self) -> bool:
        """Whether the block's output is normalised for every token; tokens routed around the block are not."""
        return self.norm_placement.normalises_stream and self.depth_routing is None

    @property
    def branch_numbers(self) -> tuple[int, ...]:
        """Index of each residual branch within the block; 0 for all if two branches read the same stream."""
        return (0,) * self.branches if self.topology == "parallel_two_norms" else tuple(range(self.branches))

    @property
    def has_mixer_residual(self) -> bool:
        """Whether the mixer has a residual branch."""
        return not self.mixer.absent

    @property
    def has_ffn_residual(self) -> bool:
        """Whether the FFN has a residual branch of its own."""
        return self.topology != "parallel" and not self.ffn.absent

    def check_mask(self, visible: Mask) -> None:
        """Raise SpecError if a part cannot see later tokens, as masks `all` and `prefix` require, or cannot be causal,
        as masks `causal` and `prefix` require."""
        with under("mixer"):
            if visible != "causal":
                self.mixer.check_ahead()
            if visible != "all":
                self.mixer.check_causal()
        if visible != "all":
            with under("ffn"):
                self.ffn.check_causal()
        parts: dict[str, BlockFeature | Ffn] = {**self.features, "ffn": self.ffn}
        for name, part in parts.items():
            if visible != "causal" and part.reaches_back:
                raise SpecError(name, "is causal: it cannot be used in an encoder or with visible: prefix")

    def claims(self, path: str, d_model: int, layers: Iterable[int]) -> Iterator[Claim]:
        """Compatibility claims of a resolved block's parts. path: the block's, in the spec; layers: those that use the
        block."""
        for name, feature in self.features.items():
            yield Claim(f"{path}.{name}", feature.needs, feature.breaks, layers)
        mixer, ffn, placement = self.mixer, self.ffn, self.norm_placement
        schemes = [scheme for scheme, _ in mixer.positions()]
        parts = {
            ("ffn", ffn.kind): {
                Ground.FULL_ROWS: ffn.cost(d_model).inactive > 0,
                Ground.SAME_WORK: ffn.dropped_flops(d_model) > 0,
                Ground.WHOLE_BLOCKS: ffn.reads_tokens,
                Ground.WHOLE_STREAM: ffn.reads_tokens,
            },
            ("mixer", mixer.kind): {
                Ground.FULL_ROWS: mixer.adds_loss,
                Ground.SAME_WORK: mixer.adds_loss,
                Ground.CONTIGUOUS: mixer.counts_places,
                Ground.WHOLE_BLOCKS: mixer.reads_tokens,
                Ground.WHOLE_STREAM: mixer.reads_tokens,
            },
            ("mixer.position", ", ".join(scheme.kind for scheme in schemes)): {
                Ground.EQUAL_ROWS: mixer.pass_flops(1) > 0,
                Ground.SAME_WORK: mixer.pass_flops(1) > 0,
                Ground.OWN_ORDER: not all(scheme.takes_places for scheme in schemes),
            },
            ("mixer.reuse_kv", ""): {Ground.LOWER_LAYERS: mixer.borrows},
            ("mixer.value_residual", ""): {Ground.LOWER_LAYERS: mixer.shared_values is not None},
        }
        for (name, kind), grounds in parts.items():
            needs = frozenset(ground for ground, needed in grounds.items() if needed)
            yield Claim(f"{path}.{name}", needs=needs, layers=layers, kind=kind)
        if mixer.borrows:  # about the whole model: the lending layer's keys and values cover all tokens
            yield Claim(f"{path}.mixer.reuse_kv", needs=frozenset({Ground.WHOLE_BLOCKS}))
        yield Claim(f"{path}.norm_placement", placement.needs, placement.breaks, kind=placement.kind)

    def cost(self, d_model: int, context: int, memory: int = 0) -> PartCost:
        """Cost of a resolved block for each token that it runs on, in a forward pass over `context` such tokens and
        `memory` encoder tokens."""
        norm = self.norm.parameters(d_model)
        total = self.mixer.cost(d_model, context) + self.ffn.cost_at(d_model, context)
        if self.cross is not None:
            total += self.cross.cost(d_model, context, memory)
        for _ in range(self.branches):
            total += self.norm_placement.extra_cost(d_model)
        for feature in self.features.values():
            total += feature.cost(d_model, norm)
        return total + PartCost(self.norms * norm)

    def cost_around(self, d_model: int) -> PartCost:
        """Cost for each token that reaches the block, whether or not the block runs on it."""
        total = PartCost(0)
        for feature in self.features.values():
            total += feature.cost_around(d_model)
        return total

    def training_cost(self, d_model: int, context: int) -> PartCost:
        """Cost that mixer and FFN add to training passes, or save in them (see `Mixer.training_cost`)."""
        return self.mixer.training_cost(d_model, context) + PartCost.of(0, -self.ffn.dropped_flops(d_model))

    def cache_elements(self, d_model: int, capacity: int) -> int:
        """Cache elements of a resolved block per sequence of up to `capacity` tokens."""
        beside = sum(feature.cache_elements(d_model) for feature in self.features.values())
        return self.mixer.cache_elements(capacity) + beside + self.ffn.cache_elements(d_model)

    def resolve(self, d_model: int) -> Self:
        """This block with ratios and defaults turned into numbers. Raises SpecError if its parts do not fit."""
        parts: dict[str, Any] = {}
        for name, part in (("mixer", self.mixer), ("ffn", self.ffn)):
            with under(name):
                parts[name] = part.resolve(d_model)
                if isinstance(parts[name], Mixer):
                    parts[name].check_scan()
        if self.cross is not None:
            with under("cross"):
                parts["cross"] = self.cross.resolve(d_model, parts["mixer"])
            if self.topology != "serial":
                raise SpecError("topology", f"must be serial for cross-attention to an encoder, not {self.topology}")
        if self.mixer.absent and self.ffn.absent:
            raise SpecError("ffn", "a block needs a mixer or an FFN")
        for name, part in (("mixer", self.mixer), ("ffn", self.ffn)):
            if part.absent and self.topology != "serial":
                raise SpecError("topology", f"{self.topology} needs a mixer and an FFN; the block has no {name}")
        for name, feature in self.features.items():
            with under(name):
                feature.check(self)
        if self.mixer.degree > 1 and not (self.norm.normalises and self.norm_placement.normalises_branch):
            grows = f"the output of {self.mixer.kind} grows with power {self.mixer.degree} of its input"
            reason = f"{grows}: it needs a norm before it"
            raise SpecError("norm" if self.norm_placement.normalises_branch else "norm_placement", reason)
        if self.topology == "parallel_two_norms" and not self.norm_placement.additive:
            placement = self.norm_placement.kind
            does = "gates" if placement == "gated" else "normalises"
            reason = f"{self.topology} needs an additive residual; {placement} {does} the stream"
            raise SpecError("topology", reason)
        return self.model_copy(update=parts)
