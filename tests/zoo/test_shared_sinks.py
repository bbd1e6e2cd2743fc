"""Shared experts that are weighted beside the chosen ones: against a loop over tokens and against transformers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import InklingTextConfig
from transformers.models.inkling.modeling_inkling import InklingMoE

import zoo
from tests.zoo.test_moe import inputs, model_of, slow_ffn
from zoo.site import ForwardPass

SINKS = {"kind": "deepseek_moe", "experts": 5, "top_k": 2, "d_ff": 6, "shared_experts": 2, "shared_sink": True,
         "scale": 2.5}  # fmt: skip


def slow_sinks(layer: Any, x: Tensor) -> Tensor:
    """x: (N, D): experts are chosen by s + b, and weighted by s over its sum of the chosen and the shared ones."""
    spec, out = layer.spec, torch.zeros_like(x)
    formulas = {
        "sigmoid": lambda v: 1 / (1 + math.exp(-v)),
        "sqrt_softplus": lambda v: math.sqrt(math.log(1 + math.exp(v))),
    }
    width = spec.shared_width // spec.shared_experts
    for n, token in enumerate(x):
        z = (layer.router.weight @ token).tolist()
        scores = [formulas[spec.score](v) for v in z]
        biased = [score + bias for score, bias in zip(scores, layer.router.selection_bias.tolist(), strict=False)]
        chosen = sorted(range(spec.experts), key=lambda e: -biased[e])[: spec.top_k]
        total = sum(scores[e] for e in chosen) + sum(scores[spec.experts :])
        for e in chosen:
            out[n] += spec.scale * scores[e] / total * slow_ffn(layer.experts, token, "swiglu", e)
        for s in range(spec.shared_experts):
            rows, shared = slice(s * width, (s + 1) * width), layer.shared
            gate, up = shared.gate.weight[rows] @ token, shared.up.weight[rows] @ token
            given = shared.down.weight[:, rows] @ (gate / (1 + (-gate).exp()) * up)
            out[n] += spec.scale * scores[spec.experts + s] / total * given
    return out


@pytest.mark.parametrize(
    "edit",
    [{}, {"score": "sqrt_softplus", "scale": 1.0}, {"shared_experts": 1, "shared_d_ff": 7}],
    ids=["sigmoid", "sqrt_softplus", "one of another width"],
)
def test_shared_experts_get_their_share_of_what_all_scores_sum_up_to(edit: dict[str, Any]) -> None:
    layer, x = model_of({**SINKS, **edit}).blocks[0].ffn, inputs()
    out, expected = layer(x, ForwardPass.of(x[..., 0])), slow_sinks(layer, x.flatten(0, 1)).view_as(x)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    weights = layer.router(x)
    total = weights.weights.sum(-1) + weights.shared.sum(-1)
    torch.testing.assert_close(total, torch.full_like(total, layer.spec.scale))


def test_a_mixture_with_sinks_is_inkling_s() -> None:
    layer, x = model_of(SINKS).blocks[0].ffn, inputs()
    config = InklingTextConfig(
        hidden_size=8, n_routed_experts=5, num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=6,
        route_scale=2.5,
    )  # fmt: skip
    theirs = InklingMoE(config)
    with torch.no_grad():
        theirs.gate.weight.copy_(layer.router.weight)
        theirs.gate.e_score_correction_bias.copy_(layer.router.selection_bias)
        theirs.experts.gate_up_proj.copy_(torch.cat((layer.experts.gate.weight, layer.experts.up.weight), dim=1))
        theirs.experts.down_proj.copy_(layer.experts.down.weight)
        theirs.shared_experts.gate_proj.copy_(layer.shared.gate.weight.unflatten(0, (2, 6)))
        theirs.shared_experts.up_proj.copy_(layer.shared.up.weight.unflatten(0, (2, 6)))
        theirs.shared_experts.down_proj.copy_(layer.shared.down.weight.unflatten(1, (2, 6)).transpose(0, 1))
        torch.testing.assert_close(layer(x, ForwardPass.of(x[..., 0])), theirs(x), rtol=1e-4, atol=1e-5)


def test_a_sink_costs_a_row_of_the_router() -> None:
    plain, sinks = (zoo.cost(model_of({**SINKS, "shared_sink": on}).spec) for on in (False, True))
    assert sinks.params - plain.params == 2 * 8
    assert sinks.flops_per_token - plain.flops_per_token == 6 * 2 * 8


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"shared_experts": 0}, "shared_sink: needs shared_experts"),
        ({"score": "softmax"}, "shared_sink: needs score: sigmoid or sqrt_softplus, and normalise: true"),
        ({"normalise": False}, "shared_sink: needs score: sigmoid or sqrt_softplus, and normalise: true"),
        ({"shared_gate": True}, "shared_gate: cannot be combined with shared_sink"),
        ({"shared_mean": True}, "shared_mean: cannot be combined with shared_sink"),
        ({"shared_bias": True}, "shared_bias: cannot be combined with shared_sink"),
    ],
)
def test_what_cannot_be_a_sink_says_why(edit: dict[str, Any], message: str) -> None:
    with pytest.raises(zoo.SpecError, match=message):
        model_of({**SINKS, **edit})
