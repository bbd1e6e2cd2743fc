"""Common code of mixtures of experts: costs, shared experts, auxiliary losses, capacity. Each routes in its own way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, Self

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.axis import is_off, number
from zoo.cache import LayerCache
from zoo.errors import SpecError
from zoo.facts import AtMost, Dropout, Fact, Features
from zoo.ffns import Ffn, FfnLayer
from zoo.ffns._activations import GATED, UNGATED, Activation, GatedActivation, PlainActivation
from zoo.ffns._dense import DenseLayer, dense_cost
from zoo.ffns._experts import Experts, expert_capacity, load_of
from zoo.ffns._width import Width, features
from zoo.init import Linear
from zoo.site import PartCost, Site, Step, matmul_cost


class MoE(Ffn):
    """y = Σ_{e chosen} w_e FFN_e(x) + FFN_shared(x). Shazeer et al. 2017, arXiv:1701.06538.

    Declared FLOPs are those of the chosen and the shared experts and of the router, less what a capacity below an even
    load is certain to drop in training; what uneven routing drops beyond that is counted as if it were not dropped.
    """

    experts: Annotated[PositiveInt, AtMost(8)] = 8
    """E: routed experts of a layer, shared ones not counted."""
    top_k: Annotated[PositiveInt, AtMost(2)] = 2
    """Experts that a token is sent to."""
    d_ff: Annotated[Width, Fact.SIZE, Fact.WIDTH] = "4/3x"
    """Hidden features of one expert: a number, or a ratio to d_model."""
    multiple_of: PositiveInt = 8
    """A ratio is rounded to the nearest multiple of this."""
    activation: Literal[PlainActivation, GatedActivation] = "swiglu"
    """Activation of every expert; gated ones have the gate's matrix too."""
    swiglu_alpha: PositiveFloat | None = None
    """α of clamped_swiglu; null for gpt-oss's 1.702."""
    swiglu_limit: PositiveFloat | None = None
    """Clamp of clamped_swiglu; null for gpt-oss's 7."""
    bias: bool = False
    """Whether the experts have biases."""
    dropout: Dropout = 0.0
    """On the hidden features, while training."""
    shared_experts: Annotated[NonNegativeInt, AtMost(1)] = 0
    """Experts that every token uses, built as one layer of that many times d_ff (DeepSeekMoE, arXiv:2401.06066)."""
    shared_d_ff: Annotated[PositiveInt | None, Fact.SIZE, Fact.WIDTH] = Field(default=None, exclude_if=is_off)
    """Hidden features of that layer where they are no multiple of d_ff (Qwen2-MoE); null for shared_experts · d_ff."""
    shared_bias: bool = False
    """Whether the shared experts have biases."""
    shared_gate: bool = False
    """Whether the shared experts' output is multiplied by σ(w·x) (Qwen2-MoE, arXiv:2407.10671)."""
    shared_mean: bool = Field(default=False, exclude_if=is_off)
    """Whether routed and shared experts are averaged, (y + y_shared) / 2, and not added up (Command A+)."""
    latent: Features | None = Field(default=None, exclude_if=is_off)
    """ℓ: features that routed experts read and write, between two matrices that all of them share, y =
    W_up Σ w_e FFN_e(W_down x) (LatentMoE, Elango et al. 2026, arXiv:2601.18089); null for d_model."""
    weights_on: Literal["output", "input"] = Field(default="output", exclude_if=lambda on: on == "output")
    """Whether w_e multiplies the expert's output, or its input, FFN_e(w_e x) (Llama 4)."""
    balance_loss: Annotated[NonNegativeFloat, Fact.TRAINING] = 0.0
    """Weight of E/k · Σ_e f_e P_e in the training objective, for each layer: f_e is the share of tokens sent to e, P_e
    the mean probability of e; 1 where both are even (Switch Transformer, arXiv:2101.03961 §2.2)."""
    router_z_loss: Annotated[NonNegativeFloat, Fact.TRAINING] = 0.0
    """Weight of mean(logsumexp(router logits)²), for each layer (ST-MoE, arXiv:2202.08906, uses 1e-3)."""
    capacity_factor: Annotated[PositiveFloat | None, Fact.TRAINING] = None
    """While training, an expert takes the first ⌈factor·N·k/E⌉ of the batch's N tokens sent to it; the others lose its
    share. Null for no limit."""

    @abstractmethod
    def router(self, d_model: int) -> Router:
        """The module that chooses experts."""

    @property
    def couples_rows(self) -> str | None:
        if self.capacity_factor is not None:
            return "capacity_factor gives an expert places for the whole batch"
        if self.balance_loss and self.balance_over == "batch":
            return "balance_loss is over the whole batch"
        return None

    @property
    def router_bias_parameters(self) -> int:
        """Parameters of the router beyond its matrix."""
        return 0

    @property
    def balance_over(self) -> Literal["batch", "sequence"]:
        """Tokens over which f and P of the balance loss are averaged."""
        return "batch"

    def resolve(self, d_model: int) -> Self:
        if self.top_k > self.experts:
            raise SpecError("top_k", f"there are only {self.experts} experts, not {self.top_k}")
        if self.shared_gate and not self.shared_experts:
            raise SpecError("shared_gate", "there are no shared experts to gate")
        if self.shared_mean and not self.shared_experts:
            raise SpecError("shared_mean", "there are no shared experts to average with")
        width = features(self.d_ff, d_model, self.multiple_of)
        numbers = {"d_ff": width, "multiple_of": 1, **self._shared(width)}
        return self.model_copy(update=numbers | self._clamp())

    def _shared(self, width: int) -> dict[str, int | None]:
        """One spelling for each width of the shared layer: as experts of `width` where it is so many of them."""
        if self.shared_d_ff is None or not self.shared_experts:
            return {"shared_d_ff": None}
        count, rest = divmod(self.shared_d_ff, width)
        return {"shared_experts": 1} if rest else {"shared_experts": count, "shared_d_ff": None}

    def _clamp(self) -> dict[str, float]:
        given = {"swiglu_alpha": self.swiglu_alpha, "swiglu_limit": self.swiglu_limit}
        if self.activation == "clamped_swiglu":
            return {"swiglu_alpha": self.swiglu_alpha or 1.702, "swiglu_limit": self.swiglu_limit or 7.0}
        for name, value in given.items():
            if value is not None:
                raise SpecError(name, f"belongs to the activation clamped_swiglu, not to {self.activation}")
        return {}

    @property
    def gated(self) -> bool:
        return self.activation in GATED

    @property
    def width(self) -> int:
        """F of a resolved spec."""
        return number(self.d_ff if isinstance(self.d_ff, int) else None)

    @property
    def shared_width(self) -> int:
        """Hidden features of the shared layer, of a resolved spec; 0 for none."""
        return self.shared_d_ff or self.shared_experts * self.width

    def hidden(self) -> Activation:
        """The activation of a resolved spec."""
        if self.activation == "clamped_swiglu":
            return partial(GATED[self.activation], alpha=self.swiglu_alpha, limit=self.swiglu_limit)
        return (GATED if self.gated else UNGATED)[self.activation]

    def build(self, site: Site) -> FfnLayer:
        return MoELayer(self, site.d_model)

    def _expert_cost(self, d_model: int) -> PartCost:
        return dense_cost(self.latent or d_model, self.width, self.gated, self.bias)

    def cost(self, d_model: int) -> PartCost:
        expert = self._expert_cost(d_model)
        idle = self.experts - self.top_k
        chosen = PartCost.of(self.experts * expert.parameters, self.top_k * expert.flops, idle * expert.parameters)
        matrix = self.experts * d_model
        total = chosen + matmul_cost(matrix + self.router_bias_parameters, matrix)
        if self.shared_experts:
            total += dense_cost(d_model, self.shared_width, self.gated, self.shared_bias)
        if self.shared_gate:
            total += matmul_cost(d_model, d_model)
        if self.latent is not None:
            total += matmul_cost(2 * d_model * self.latent, 2 * d_model * self.latent)
        return total

    def dropped_flops(self, d_model: int) -> float:
        """FLOPs dropped by capacity however tokens are routed: full experts take a share of `capacity_factor` of them.
        Further drops from uneven routing cannot be known in advance."""
        left_out = 1 - min(1.0, self.capacity_factor or 1.0)
        return left_out * self.top_k * self._expert_cost(d_model).flops

    def parameters_read(self, d_model: int, tokens: int) -> float:
        """All but those of the E (1 − k/E)^tokens experts to which, in expectation, no token is sent, where each token
        is as likely to be sent to one expert as to another, whatever the others do."""
        idle = self.experts * (1 - self.top_k / self.experts) ** tokens
        return self.cost(d_model).parameters - idle * self._expert_cost(d_model).parameters


@dataclass(frozen=True)
class Routing:
    """Where tokens go.

    logits, probabilities: (..., E), float32; probabilities sum to one. chosen, weights: (..., k).
    counted: (..., k), the experts that the balance loss counts as having got the token.
    """

    logits: Tensor
    probabilities: Tensor
    chosen: Tensor
    weights: Tensor
    counted: Tensor


class Router(nn.Module, ABC):
    """x: (..., D) → `Routing`. Logits are float32 whatever the model's type: rounding them changes who is chosen."""

    def __init__(self, d_model: int, experts: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, d_model))
        self.bias = nn.Parameter(torch.zeros(experts)) if bias else None
        self.roles = {"weight": "input", "bias": "bias"}

    def forward(self, x: Tensor) -> Routing:
        with torch.autocast(x.device.type, enabled=False):
            bias = None if self.bias is None else self.bias.float()
            return self.route(F.linear(x.float(), self.weight.float(), bias))

    @abstractmethod
    def route(self, logits: Tensor) -> Routing:
        """logits: (..., E) float32."""

    def count(self, load: Tensor) -> None:
        """Take note of a training pass. load: (E,), the tokens that it sent to each expert."""


class MoELayer(FfnLayer):
    """x: (B, T, D) → (B, T, D). Shows `ffn.load`: (E,), the share of the assignments that each expert got."""

    def __init__(self, spec: MoE, d_model: int) -> None:
        super().__init__()
        self.spec = spec
        self.router = spec.router(d_model)
        self.latent_down, self.latent_up = None, None
        if spec.latent is not None:
            self.latent_down = Linear(d_model, spec.latent, role="input")
            self.latent_up = Linear(spec.latent, d_model, role="output")
        self.experts = Experts(
            spec.experts,
            spec.latent or d_model,
            spec.width,
            spec.hidden(),
            gated=spec.gated,
            bias=spec.bias,
            dropout=spec.dropout,
        )
        self.experts.weights_inputs = spec.weights_on == "input"
        self.shared_gate = Linear(d_model, 1, role="input") if spec.shared_gate else None
        self.shared = None
        if spec.shared_experts:
            bias, dropout = spec.shared_bias, spec.dropout
            self.shared = DenseLayer(
                d_model, spec.shared_width, spec.hidden(), gated=spec.gated, bias=bias, dropout=dropout
            )

    def forward(self, x: Tensor, step: Step, cache: LayerCache | None = None) -> Tensor:
        routing: Routing = self.router(x)
        read = x if self.latent_down is None else self.latent_down(x)  # (B, T, D), or (B, T, ℓ)
        rows, chosen, weights = (t.flatten(0, -2) for t in (read, routing.chosen, routing.weights))
        out: Tensor = self.experts(rows, chosen, weights, self._capacity(rows.shape[0])).view_as(read)
        if self.latent_up is not None:
            out = self.latent_up(out)
        load = load_of(chosen, self.spec.experts)
        step.tap("ffn.load", lambda: load / chosen.numel())
        if self.training:
            step.losses += self._losses(routing)
            if not step.again:
                self.router.count(load)
        if self.shared is not None:
            shared = self.shared(x, step)
            out = out + (shared if self.shared_gate is None else shared * self.shared_gate(x).sigmoid())
            out = out / 2 if self.spec.shared_mean else out
        return out

    def _capacity(self, tokens: int) -> int | None:
        if not self.training or self.spec.capacity_factor is None:
            return None
        return expert_capacity(self.spec.capacity_factor, tokens, self.spec.top_k, self.spec.experts)

    def _losses(self, routing: Routing) -> list[Tensor]:
        """Weighted."""
        spec, losses = self.spec, []
        if spec.balance_loss:
            losses.append(spec.balance_loss * balance_loss(routing, spec.balance_over))
        if spec.router_z_loss:
            losses.append(spec.router_z_loss * routing.logits.logsumexp(dim=-1).square().mean())
        return losses


def balance_loss(routing: Routing, over: Literal["batch", "sequence"]) -> Tensor:
    """E/k · Σ_e f_e P_e, with f and P means over the batch, or over each sequence and then the mean of the results."""
    tokens = (0, 1) if over == "batch" else (1,)
    probabilities = routing.probabilities
    sent = torch.zeros_like(probabilities).scatter(-1, routing.counted, 1.0)
    even = probabilities.shape[-1] / routing.counted.shape[-1]
    loss: Tensor = even * (sent.mean(tokens) * probabilities.mean(tokens)).sum(-1).mean()
    return loss
