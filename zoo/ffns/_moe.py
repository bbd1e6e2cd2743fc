"""Shared code of mixtures of experts: costs, shared experts, auxiliary losses, capacity. Each variant has a router."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from math import ceil
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import BY_TOKEN, Operation
from zoo.errors import SpecError
from zoo.ffns import FfnLayer
from zoo.ffns._activations import GATED, UNGATED, Activation, GatedActivation, PlainActivation
from zoo.ffns._dense import DenseLayer, Width, dense_cost, features
from zoo.ffns._experts import Experts, Routed, ZeroComputeExperts, load_of
from zoo.ffns._routing import Router, RouterMLP, Routing, balance_loss
from zoo.init import Linear
from zoo.settings.axis import is_off, number
from zoo.settings.field_tags import Dropout, Fact, Features, MaxInTests, Supports
from zoo.site import ForwardPass, LayerSite, PartCost, matmul_cost


class MoE(Routed):
    """y = Σ_{e chosen} w_e FFN_e(x) + FFN_shared(x). Shazeer et al. 2017, arXiv:1701.06538.

    Declared FLOPs are those of the router, the chosen and the shared experts, minus those that a capacity below the
    balanced load is certain to drop in training. Further drops, from uneven routing, are not subtracted.
    """

    d_ff: Annotated[Width, Fact.SIZE, Fact.WIDTH] = "4/3x"
    """Hidden features of one expert: a number, or a ratio to d_model."""
    multiple_of: PositiveInt = 8
    """A ratio is rounded to the nearest multiple of this."""
    activation: Literal[PlainActivation, GatedActivation] = "swiglu"
    """Activation of every expert; a gated one adds a gate matrix to each expert."""
    swiglu_alpha: Annotated[PositiveFloat | None, Supports(*BY_TOKEN)] = None
    """α of clamped_swiglu; null for gpt-oss's 1.702."""
    swiglu_limit: Annotated[PositiveFloat | None, Supports(*BY_TOKEN)] = None
    """Clamp of clamped_swiglu; null for gpt-oss's 7."""
    bias: Annotated[bool, Supports(*BY_TOKEN)] = False
    """Whether the experts have biases."""
    dropout: Dropout = 0.0
    """Dropout probability of the hidden features in training."""
    shared_experts: Annotated[NonNegativeInt, MaxInTests(1), Supports(*BY_TOKEN)] = 0
    """Number of experts that every token uses, built as one layer of shared_experts · d_ff hidden features
    (DeepSeekMoE, arXiv:2401.06066)."""
    shared_d_ff: Annotated[PositiveInt | None, Fact.SIZE, Fact.WIDTH] = Field(default=None, exclude_if=is_off)
    """Hidden features of the shared layer (Qwen2-MoE); null for shared_experts · d_ff."""
    shared_bias: Annotated[bool, Supports(*BY_TOKEN)] = False
    """Whether the shared experts have biases."""
    shared_gate: Annotated[bool, Supports(*BY_TOKEN)] = False
    """Whether the shared experts' output is multiplied by σ(w·x) (Qwen2-MoE, arXiv:2407.10671)."""
    shared_mean: Annotated[bool, Supports(*BY_TOKEN)] = Field(default=False, exclude_if=is_off)
    """Whether the outputs of routed and shared experts are averaged, (y + y_shared) / 2, not added (Command A+)."""
    latent: Features | None = Field(default=None, exclude_if=is_off)
    """ℓ: width of the routed experts' input and output, between two matrices that all of them share:
    y = W_up Σ w_e FFN_e(W_down x) (LatentMoE, Elango et al. 2026, arXiv:2601.18089); null for d_model."""
    router_hidden: Annotated[Features | None, Supports(Operation.SHARDING)] = Field(default=None, exclude_if=is_off)
    """R: width of an MLP that the router reads instead of x, z = gelu(W₂ gelu(W₁ (rms(W₀ x + b₀) ⊙ g) + b₁) + b₂)
    (ZAYA1, arXiv:2511.17127, without its average over layers); null for x."""
    weights_on: Literal["output", "input"] = Field(default="output", exclude_if=lambda on: on == "output")
    """Whether w_e multiplies the expert's output, or its input, FFN_e(w_e x) (Llama 4)."""
    balance_loss: Annotated[NonNegativeFloat, Fact.TRAINING] = 0.0
    """Weight of E/k · Σ_e f_e P_e, per layer, in the training objective: f_e is the share of tokens sent to e, P_e the
    mean probability of e; the sum is 1 if both are uniform (Switch Transformer, arXiv:2101.03961 §2.2)."""
    router_z_loss: Annotated[NonNegativeFloat, Fact.TRAINING, Supports(*BY_TOKEN)] = 0.0
    """Weight of mean(logsumexp(router logits)²), per layer (ST-MoE, arXiv:2202.08906, uses 1e-3)."""
    capacity_factor: Annotated[PositiveFloat | None, Fact.TRAINING] = None
    """In training, an expert takes the first ⌈factor·N·k/E⌉ tokens sent to it from the batch's N tokens; the others get
    nothing from it. Null for no limit."""

    @abstractmethod
    def router(self, d_model: int) -> Router:
        """Module that chooses experts."""

    @property
    def couples_rows(self) -> str | None:
        if self.capacity_factor is not None:
            return "capacity_factor limits an expert's tokens over the whole batch"
        if self.balance_loss and self.balance_over == "batch":
            return "balance_loss is over the whole batch"
        return None

    @property
    def router_rows(self) -> int:
        """Number of the router's logits."""
        return self.choices

    @property
    def router_bias_parameters(self) -> int:
        """Number of the router's bias parameters."""
        return 0

    @property
    def balance_over(self) -> Literal["batch", "sequence"]:
        """Tokens over which f and P of the balance loss are averaged."""
        return "batch"

    def resolve(self, d_model: int) -> Self:
        if self.top_k > self.choices:
            raise SpecError("top_k", f"must be at most {self.choices}, the number of experts, not {self.top_k}")
        if self.tau != 1 and not self.zero_compute:
            raise SpecError("tau", "needs zero_experts, copy_experts or constant_experts")
        for name, bad in (("capacity_factor", self.capacity_factor), ("weights_on", self.weights_on == "input")):
            if self.zero_compute and bad:
                raise SpecError(name, "not supported with zero, copy or constant experts")
        for name in ("shared_gate", "shared_mean"):
            if getattr(self, name) and not self.shared_experts:
                raise SpecError(name, "needs shared_experts")
        width = features(self.d_ff, d_model, self.multiple_of)
        numbers = {"d_ff": width, "multiple_of": 1, **self._shared(width)}
        return self.model_copy(update=numbers | self._clamp())

    def _shared(self, width: int) -> dict[str, int | None]:
        """Canonical form of the shared layer's width: a number of experts if it is a multiple of `width`."""
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
                raise SpecError(name, f"needs activation: clamped_swiglu, not {self.activation}")
        return {}

    @property
    def gated(self) -> bool:
        return self.activation in GATED

    @property
    def width(self) -> int:
        """F: hidden features of an expert of a resolved spec."""
        return number(self.d_ff if isinstance(self.d_ff, int) else None)

    @property
    def shared_width(self) -> int:
        """Hidden features of a resolved spec's shared layer; 0 without one."""
        return self.shared_d_ff or self.shared_experts * self.width

    def hidden(self) -> Activation:
        """Activation of a resolved spec."""
        if self.activation == "clamped_swiglu":
            return partial(GATED[self.activation], alpha=self.swiglu_alpha, limit=self.swiglu_limit)
        return (GATED if self.gated else UNGATED)[self.activation]

    def build(self, site: LayerSite) -> FfnLayer:
        return MoELayer(self, site.d_model)

    def _expert_cost(self, d_model: int) -> PartCost:
        return dense_cost(self.latent or d_model, self.width, self.gated, self.bias)

    def cost(self, d_model: int) -> PartCost:
        expert, read = self._expert_cost(d_model), self.latent or d_model
        idle = round((self.experts - self.ffns_per_token) * expert.parameters)
        total = PartCost.of(self.experts * expert.parameters, self.ffns_per_token * expert.flops, idle)
        total += self.router_cost(d_model)
        if self.constant_experts:
            total += matmul_cost(3 * self.constant_experts * read, 2 * self.constant_experts * read)
            total += PartCost.of(0, 2.0 * self.constant_experts * read)  # the product of weights and constants
        if self.shared_experts:
            total += dense_cost(d_model, self.shared_width, self.gated, self.shared_bias)
        if self.shared_gate:
            total += matmul_cost(d_model, d_model)
        if self.latent is not None:
            total += matmul_cost(2 * d_model * self.latent, 2 * d_model * self.latent)
        return total

    def router_cost(self, d_model: int) -> PartCost:
        """Cost of the router per token."""
        parameters, matrices = 0, 0
        if self.router_hidden is not None:
            parameters, matrices = RouterMLP.sizes(d_model, self.router_hidden)
        matrix = self.router_rows * (self.router_hidden or d_model)
        return matmul_cost(parameters + matrix + self.router_bias_parameters, matrices + matrix)

    def dropped_flops(self, d_model: int) -> float:
        """FLOPs per token that capacity drops under any routing: experts that are all full take a share
        `capacity_factor` of the assignments. Further drops, from uneven routing, cannot be known in advance."""
        left_out = 1 - min(1.0, self.capacity_factor or 1.0)
        return left_out * self.top_k * self._expert_cost(d_model).flops

    def parameters_read(self, d_model: int, tokens: int) -> float:
        """All parameters but those of idle experts. If tokens are routed uniformly and independently, the expected
        number of idle experts is E (1 − k/E)^tokens, with k = `ffns_per_token`."""
        idle = self.experts * (1 - self.ffns_per_token / self.experts) ** tokens
        return self.cost(d_model).parameters - idle * self._expert_cost(d_model).parameters


class MoELayer(FfnLayer):
    """x: (B, T, D) → (B, T, D). Taps `ffn.load`: (choices,), each expert's share of the assignments, those without an
    FFN included."""

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
        self.zero_compute = None
        if spec.zero_compute:
            self.experts.beside, self.experts.share = spec.zero_compute, spec.ffns_per_token / spec.top_k
            counts = spec.zero_experts, spec.copy_experts, spec.constant_experts
            self.zero_compute = ZeroComputeExperts(spec.experts, *counts, spec.latent or d_model)
        self.experts.weights_inputs = spec.weights_on == "input"
        self.shared_gate = Linear(d_model, 1, role="input") if spec.shared_gate else None
        self.shared = None
        if spec.shared_experts:
            bias, dropout = spec.shared_bias, spec.dropout
            self.shared = DenseLayer(
                d_model, spec.shared_width, spec.hidden(), gated=spec.gated, bias=bias, dropout=dropout
            )

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        routing: Routing = self.router(x, step.tokens)
        read = x if self.latent_down is None else self.latent_down(x)  # (B, T, D), or (B, T, ℓ)
        out = self.routed(read, routing, step)
        if self.latent_up is not None:
            out = self.latent_up(out)
        if self.shared is not None:
            if routing.shared is not None:
                beside = self.shared.weighted(x, routing.shared, step)
            else:
                beside = self.shared(x, step)
            if self.shared_gate is not None:
                beside = beside * self.shared_gate(x).sigmoid()
            out = (out + beside) / 2 if self.spec.shared_mean else out + beside
        return out

    def routed(self, read: Tensor, routing: Routing, step: ForwardPass) -> Tensor:
        """Weighted sum of the chosen experts' outputs. read: (B, T, D or ℓ) → the same shape."""
        rows, chosen, weights = (t.flatten(0, -2) for t in (read, routing.chosen, routing.weights))
        spec, capacity = self.spec, None
        if self.training and spec.capacity_factor is not None:
            capacity = ceil(spec.capacity_factor * len(rows) * spec.top_k / spec.experts)
        out: Tensor = self.experts(rows, chosen, weights, capacity)
        if self.zero_compute is not None:
            out = out + self.zero_compute(rows, chosen, weights)
        step.tap("ffn.load", lambda: load_of(chosen, spec.choices) / chosen.numel())
        if self.training:
            if spec.balance_loss:
                penalties = None if spec.tau == 1 else [1.0] * spec.experts + [spec.tau] * spec.zero_compute
                step.losses.append(spec.balance_loss * balance_loss(routing, spec.balance_over, penalties))
            if spec.router_z_loss:
                step.losses.append(spec.router_z_loss * routing.logits.logsumexp(dim=-1).square().mean())
            step.count(self.router.count, load_of(chosen, spec.choices))
        return out.view_as(read)
