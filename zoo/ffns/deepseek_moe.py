"""DeepSeek's mixture of experts: fine-grained and shared experts, expert groups, loss-free load balancing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn import functional as F

from zoo.adapting import Adapting
from zoo.compatibility.traits import BY_TOKEN, Operations
from zoo.errors import SpecError
from zoo.ffns._dense import Width
from zoo.ffns._moe import MoE
from zoo.ffns._routing import LinearRouter, Router, Routing
from zoo.settings.axis import Examples, is_off
from zoo.settings.field_tags import Fact, MaxInTests


def sqrt_softplus(z: Tensor) -> Tensor:
    """√log(1 + eᶻ), at least 1e-15, since the square root has no finite gradient at 0."""
    return F.softplus(z).clamp(min=1e-30).sqrt()


SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "softmax": partial(torch.softmax, dim=-1),
    "sqrt_softplus": sqrt_softplus,
}


class DeepSeekMoE(MoE):
    """y = Σ_{e chosen} w_e FFN_e(x) + FFN_shared(x), with scores s = σ(W_router x) or their softmax.

    V3 (arXiv:2412.19437 §2.1.2) chooses by s + b: first the `top_groups` of the `groups` of experts whose two best
    experts have the largest sum, then the `top_k` experts in these groups. w is s of the chosen experts, normalised,
    times `scale`. b is a buffer: each training step changes it by `bias_rate`·sign(mean load − load)
    (arXiv:2408.15664). V2 (arXiv:2405.04434) is `score: softmax`, `group_score: max`, `normalise: false`,
    `bias_rate: null`. The balance loss of V3 counts the k largest s of all experts, whatever b and the groups choose
    (eq. 18); that of V2, without b, counts the chosen experts. At the default widths a token costs as much as in a
    SwiGLU layer of 8/3x, plus the router. x: (B, T, D).
    """

    examples: ClassVar[Examples] = (
        {"d_ff": 12, "experts": 12, "groups": 4, "top_groups": 2, "top_k": 4, "scale": 3.0},
        {"d_ff": 12, "score": "softmax", "normalise": False, "bias_rate": None, "weights_on": "input"},
        {"d_ff": 12, "score": "sqrt_softplus", "bias_on": "logit", "router_softcap": 3.0, "shared_mean": True},
        {"d_ff": 12, "experts": 6, "latent": 10},
        {"d_ff": 12, "experts": 5, "copy_experts": 2, "tau": 2.0, "score": "softmax", "normalise": False},
        {"d_ff": 12, "experts": 5, "zero_experts": 1, "router_hidden": 7, "score": "softmax", "normalise": False},
        {"d_ff": 12, "experts": 5, "shared_experts": 2, "shared_sink": True, "scale": 2.0},
    )
    paired_examples: ClassVar[int | None] = 2
    kind: Literal["deepseek_moe"] = "deepseek_moe"
    supports: ClassVar[Operations] = BY_TOKEN
    experts: PositiveInt = 16
    top_k: PositiveInt = 3
    d_ff: Width = "2/3x"
    shared_experts: NonNegativeInt = 1
    score: Literal["sigmoid", "softmax", "sqrt_softplus"] = "sigmoid"
    """Scores s of the experts: the sigmoid of each logit z (V3), √softplus(z) (DeepSeek-V4), or the softmax over all
    experts (V2)."""
    router_softcap: PositiveFloat | None = Field(default=None, exclude_if=is_off)
    """c: soft cap of the router's logits, z ← c · tanh(z / c) (Laguna); null for no cap."""
    groups: Annotated[PositiveInt, MaxInTests(4)] = 1
    """Number of equal groups that the experts are divided into."""
    top_groups: Annotated[PositiveInt, MaxInTests(2)] = 1
    """Number of groups that a token's experts are chosen from, at most `groups`."""
    group_score: Literal["top2", "max"] = "top2"
    """Score of a group: the sum of its two best experts' scores, or the best expert's score."""
    normalise: bool = True
    """Whether the chosen experts' weights are divided by their sum. If top_k is 1, only auxiliary losses then train the
    router."""
    scale: PositiveFloat = 1.0
    """Factor on the weights w of the chosen experts, and of the shared experts if `shared_sink` weights them."""
    shared_sink: bool = Field(default=False, exclude_if=is_off)
    """Whether every shared expert also has a logit and a weight, normalised together with the chosen experts' weights,
    so that it absorbs what they leave (Inkling, Thinking Machines Lab 2026)."""
    bias_rate: Annotated[NonNegativeFloat | None, Fact.TRAINING_UNLESS_NULL] = 1e-3
    """Step size of the updates of b; null for no bias b."""
    bias_on: Literal["score", "logit"] = Field(default="score", exclude_if=lambda on: on == "score")
    """Whether b is added to the scores s or to the logits z (Kolibri 1). It affects the choice, not the weights."""
    balance_loss: NonNegativeFloat = 1e-4
    loss_over: Annotated[Literal["sequence", "batch"], Fact.TRAINING] = "sequence"
    """Tokens over which the balance loss averages: each sequence, or the batch."""

    def resolve(self, d_model: int) -> Self:
        if self.shared_sink:
            self._check_sink()
        if self.zero_compute and self.groups > 1:
            raise SpecError("groups", "must be 1 with zero, copy or constant experts")
        if self.experts % self.groups:
            raise SpecError("groups", f"{self.groups} groups do not divide {self.experts} experts")
        if self.top_groups > self.groups:
            raise SpecError("top_groups", f"must be at most groups = {self.groups}, not {self.top_groups}")
        size = self.experts // self.groups
        if self.bias_on == "logit" and (self.bias_rate is None or self.top_groups < self.groups):
            raise SpecError("bias_on", "logit needs bias_rate, and top_groups equal to groups")
        if self.group_score == "top2" and size < 2 and self.top_groups < self.groups:
            raise SpecError("group_score", "top2 needs groups of two experts or more")
        if self.groups > 1 and self.top_k > self.top_groups * size:
            most = self.top_groups * size
            raise SpecError(
                "top_k", f"must be at most {most}, the experts of top_groups = {self.top_groups}, not {self.top_k}"
            )
        return super().resolve(d_model)

    def _check_sink(self) -> None:
        if not self.shared_experts:
            raise SpecError("shared_sink", "needs shared_experts")
        if self.score == "softmax" or not self.normalise:
            raise SpecError("shared_sink", "needs score: sigmoid or sqrt_softplus, and normalise: true")
        for name in ("shared_gate", "shared_mean", "shared_bias"):
            if getattr(self, name):
                raise SpecError(name, "cannot be combined with shared_sink: the router weights the shared experts")

    @property
    def router_rows(self) -> int:
        return self.choices + self.shared_experts * self.shared_sink

    @property
    def balance_over(self) -> Literal["batch", "sequence"]:
        return self.loss_over

    def router(self, d_model: int) -> Router:
        return DeepSeekRouter(self, d_model)


class DeepSeekRouter(LinearRouter, Adapting):
    """x: (..., D) → `Routing`. Probabilities are the scores divided by their sum.

    counts: (choices,), tokens that training passes have sent to each expert since the last update of b.
    """

    selection_bias: Tensor | None

    def __init__(self, spec: DeepSeekMoE, d_model: int) -> None:
        super().__init__(d_model, spec.router_rows, hidden=spec.router_hidden)
        self.spec = spec
        has_bias = spec.bias_rate is not None
        self.register_buffer("selection_bias", torch.zeros(spec.choices) if has_bias else None)
        counts = torch.zeros(spec.choices, dtype=torch.long) if has_bias else None
        self.register_buffer("counts", counts, persistent=False)

    def forward(self, x: Tensor, tokens: Tensor | None = None) -> Routing:
        logits = self.logits(x)
        if (cap := self.spec.router_softcap) is not None:
            logits = cap * torch.tanh(logits / cap)
        score, shared = SCORES[self.spec.score], None
        if self.spec.shared_sink:
            logits, of_shared = logits.split((self.spec.choices, self.spec.shared_experts), dim=-1)
            shared = score(of_shared)
        scores = score(logits)
        chosen = self._choose((logits if self.spec.bias_on == "logit" else scores).detach())
        weights = scores.gather(-1, chosen)
        if self.spec.normalise:
            total = weights.sum(dim=-1, keepdim=True) + 1e-20
            if shared is not None:
                total = total + shared.sum(dim=-1, keepdim=True)
                shared = shared / total * self.spec.scale
            weights = weights / total
        probabilities = scores / scores.sum(dim=-1, keepdim=True)
        counted = chosen if self.selection_bias is None else scores.topk(self.spec.top_k, dim=-1).indices
        return Routing(logits, probabilities, chosen, weights * self.spec.scale, counted, shared)

    def _choose(self, scores: Tensor) -> Tensor:
        """Scores, or logits if the bias applies to them: (..., E) → chosen experts: (..., k)."""
        if self.selection_bias is not None:
            scores = scores + self.selection_bias
        if self.spec.top_groups < self.spec.groups:
            grouped = scores.unflatten(-1, (self.spec.groups, -1))
            best = grouped.topk(2 if self.spec.group_score == "top2" else 1, dim=-1).values.sum(-1)
            kept = torch.zeros_like(best).scatter(-1, best.topk(self.spec.top_groups, dim=-1).indices, 1.0)
            # −∞, not 0: a biased score can be negative, and an excluded expert must not beat it.
            scores = grouped.masked_fill(kept[..., None] == 0, float("-inf")).flatten(-2)
        return scores.topk(self.spec.top_k, dim=-1).indices

    @torch.no_grad()
    def count(self, load: Tensor) -> None:
        if self.counts is not None:
            self.counts += load

    def adapt(self, counts: Tensor) -> None:
        if self.selection_bias is not None and self.spec.bias_rate is not None:
            wanted = counts.float().mean()
            if self.spec.tau != 1:
                wanted = counts.sum() * self.selection_bias.new_tensor(self.spec.even_load)
            self.selection_bias += self.spec.bias_rate * (wanted - counts).sign()
