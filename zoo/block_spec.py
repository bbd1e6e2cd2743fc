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
from zoo.ffns.swiglu import SwiGLU
from zoo.mixers import Mixer
from zoo.mixers._cross import CrossAttention
from zoo.mixers.attention import Attention
from zoo.norms import Norm
from zoo.norms.rmsnorm import RMSNorm
from zoo.residuals import Residual
from zoo.residuals.pre import Pre
from zoo.settings.axis import Choice, Spec, is_off
from zoo.settings.field_tags import Dropout, Fact, Supports, ValuesInTests
from zoo.site import Mask, PartCost


class BlockSpec(Spec):
    """One block: a mixer and an FFN, each wrapped by the same kind of norm at the same place.

    topology: `serial`, the FFN reads what the mixer wrote; `parallel`, both read the same normalised stream (GPT-J,
    PaLM); `parallel_two_norms`, each through a norm of its own (GPT-NeoX). dropout: on each branch's output while
    training.
    """

    supports: ClassVar[Operations] = EVERY_OPERATION

    norm: Annotated[Norm, Choice("zoo.norms")] = RMSNorm()
    """Norm at the block's residuals, and of the model before the head: `rmsnorm`."""
    norm_placement: Annotated[Residual, Choice("zoo.residuals")] = Pre()
    """Residual connection around mixer and FFN, and where their norm stands: `pre`, `post`, `peri`."""
    mixer: Annotated[Mixer, Choice("zoo.mixers")] = Attention()
    """Token mixer: softmax attention, a linear or recurrent state, or none."""
    ffn: Annotated[Ffn, Choice("zoo.ffns")] = SwiGLU()
    """Feed-forward layer of each token by itself: dense, gated, a mixture of experts, or none."""
    topology: Literal["serial", "parallel", "parallel_two_norms"] = "serial"
    """Order of mixer and FFN: `serial`; `parallel`, on one norm's output; `parallel_two_norms`, each on its own
    norm's."""
    dropout: Dropout = 0.0
    """Dropout on the output of each branch, in training."""
    stochastic_depth: Annotated[
        float, Field(ge=0, lt=1, exclude_if=is_off), Fact.TRAINING, ValuesInTests(0.001), Supports(*EVERY_OPERATION)
    ] = 0.0
    """Probability that a branch of the last layer is left out of a row while training, in layer l of L (l + 1)/L times
    that (Huang et al. 2016, arXiv:1603.09382)."""
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
    """A share of the tokens that the block runs on; null for all."""
    cross: CrossAttention | None = Field(default=None, exclude_if=is_off)
    """Attention to the encoder, between mixer and FFN; null for its defaults where there is an encoder."""

    @property
    def features(self) -> dict[str, BlockFeature]:
        """Features beside mixer and FFN, keyed by setting."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: value for name, value in values.items() if isinstance(value, BlockFeature)}

    @property
    def subset(self) -> DepthRouting | None:
        """The tokens that it runs on; None for all."""
        return self.depth_routing

    @property
    def norms(self) -> int:
        """Number of norms of the block's kind at its residuals."""
        return self.norm_placement.norms * self.branches

    @property
    def branches(self) -> int:
        """Number of residual branches."""
        return self.has_mixer_residual + self.has_ffn_residual + (self.cross is not None)

    @property
    def normalises_stream(self) -> bool:
        """Whether what leaves the block is normed for every token: those that pass it by are not."""
        return self.norm_placement.normalises_stream and self.depth_routing is None

    @property
    def branch_numbers(self) -> tuple[int, ...]:
        """Number of the block's residuals before each of its own: 0 for all where two read the same stream."""
        return (0,) * self.branches if self.topology == "parallel_two_norms" else tuple(range(self.branches))

    @property
    def has_mixer_residual(self) -> bool:
        """Whether the mixer has one."""
        return not self.mixer.absent

    @property
    def has_ffn_residual(self) -> bool:
        """Whether the FFN has one of its own."""
        return self.topology != "parallel" and not self.ffn.absent

    def check_sight(self, visible: Mask) -> None:
        """Raise SpecError where a token cannot be shown what comes after it, as encoders and prefixes ask, or not be
        kept from it, as all but encoders do."""
        with under("mixer"):
            if visible != "causal":
                self.mixer.check_ahead()
            if visible != "all":
                self.mixer.check_causal()
        if visible != "all":
            with under("ffn"):
                self.ffn.check_causal()
        if visible != "causal" and (self.canon is not None or self.ffn.reaches_back):
            path = "ffn" if self.canon is None else "canon"
            raise SpecError(path, "reaches back only: it cannot see later tokens")

    def claims(self, path: str, d_model: int, layers: Iterable[int]) -> Iterator[Claim]:
        """Claims of the parts of a resolved block. path, layers: where the model has it."""
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
        if mixer.borrows:  # of whichever layer: what it borrows is of all tokens
            yield Claim(f"{path}.mixer.reuse_kv", needs=frozenset({Ground.WHOLE_BLOCKS}))
        yield Claim(f"{path}.norm_placement", placement.needs, placement.breaks, kind=placement.kind)

    def cost(self, d_model: int, context: int, memory: int = 0) -> PartCost:
        """Per token of a forward pass over `context` tokens that a resolved block runs on, which attends to `memory`
        tokens where there is an encoder."""
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
        """Per token that reaches the block, whether or not the block runs on it."""
        total = PartCost(0)
        for feature in self.features.values():
            total += feature.cost_around(d_model)
        return total

    def training_cost(self, d_model: int, context: int) -> PartCost:
        """Cost that mixer and FFN add to training passes, or leave out of them (see `Mixer.training_cost`)."""
        return self.mixer.training_cost(d_model, context) + PartCost.of(0, -self.ffn.dropped_flops(d_model))

    def cache_elements(self, d_model: int, capacity: int) -> int:
        """Numbers kept per sequence, for up to `capacity` tokens, by a resolved block."""
        beside = sum(feature.cache_elements(d_model) for feature in self.features.values())
        return self.mixer.cache_elements(capacity) + beside + self.ffn.cache_elements(d_model)

    def resolve(self, d_model: int) -> Self:
        """The same block with ratios and defaults turned into numbers."""
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
                raise SpecError("topology", f"{self.topology} has no place for attention to an encoder")
        self._check_absent()
        self._check_laurel()
        if self.mixer.degree > 1 and not (self.norm.normalises and self.norm_placement.normalises_branch):
            reason = f"{self.mixer.kind} gives what it reads to the power of {self.mixer.degree}: it needs a norm"
            raise SpecError("norm" if self.norm_placement.normalises_branch else "norm_placement", reason)
        if self.topology == "parallel_two_norms" and not self.norm_placement.additive:
            placement = self.norm_placement.kind
            does = "gates" if placement == "gated" else "normalises"
            reason = f"{placement} {does} the stream where two branches with norms of their own would meet it"
            raise SpecError("topology", reason)
        return self.model_copy(update=parts)

    def _check_laurel(self) -> None:
        """Raise SpecError where there is no plain stream for it to add to."""
        if self.laurel is None:
            return
        placement = self.norm_placement
        if self.mixer.absent or self.topology != "serial":
            raise SpecError("laurel", "is beside the residual of a mixer alone: it needs a mixer, and topology serial")
        if placement.streams is not None or not placement.additive:
            reason = f"adds to a stream of (B, T, D) that nothing normalises right after: {placement.kind} has none"
            raise SpecError("laurel", reason)

    def _check_absent(self) -> None:
        """Raise SpecError where something asks for the mixer or the FFN of a block that has none."""
        if self.mixer.absent and self.ffn.absent:
            raise SpecError("ffn", "there is no mixer either: a block has one of them at least")
        for name, part, other in (("mixer", self.mixer, "ffn"), ("ffn", self.ffn, "mixer")):
            if part.absent and self.topology != "serial":
                raise SpecError("topology", f"{self.topology} needs mixer and ffn side by side, and there is no {name}")
            for setting, feature in (("canon", self.canon), ("gated_norm", self.gated_norm)):
                if part.absent and feature is not None and name in feature.before:
                    raise SpecError(f"{setting}.before", f"there is no {name} for it to be before: before: [{other}]")
