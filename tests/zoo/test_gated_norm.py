"""Gates on the norms' outputs: against the formula feature by feature, and against transformers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from transformers import AXK2Config
from transformers.models.axk2.modeling_axk2 import AXK2GatedRMSNorm

import zoo
from tests.zoo.slow import random_stream
from zoo.conformance.combinations import random_model
from zoo.site import ForwardPass


def small(**edits: Any) -> zoo.ModelSpec:
    return zoo.load("small", **{"d_model": 16, "n_layers": 2, "block.gated_norm": {"rank": 3}, **edits})


def slow_gate(layer: Any, y: list[float]) -> list[float]:
    """y ⊙ σ(W_up swish(W_down y)), of one token."""
    read = [sum(w * v for w, v in zip(row, y, strict=True)) for row in layer.down.weight.tolist()]
    swish = [v / (1 + math.exp(-v)) for v in read]
    opened = [sum(w * v for w, v in zip(row, swish, strict=True)) for row in layer.up.weight.tolist()]
    return [v / (1 + math.exp(-gate)) for v, gate in zip(y, opened, strict=True)]


def test_each_branch_reads_its_norm_s_output_through_a_gate() -> None:
    model: Any = random_model(small()).double()
    x = random_stream(7, 16)
    step, block = ForwardPass.of(x), model.blocks[0]
    with torch.no_grad():

        def read(gate: Any, residual: Any, stream: torch.Tensor) -> torch.Tensor:
            normed = residual.norm_in(stream)[0].tolist()
            return torch.tensor([[slow_gate(gate, token) for token in normed]], dtype=torch.float64)

        middle = x + block.mixer(read(block.gates.mixer, block.mixer_residual, x), step)
        expected = middle + block.ffn(read(block.gates.ffn, block.ffn_residual, middle), step)
        torch.testing.assert_close(block(x, step), expected, rtol=1e-5, atol=1e-6)


def test_a_gated_norm_is_that_of_ax_k2() -> None:
    block: Any = random_model(small()).blocks[0]
    theirs = AXK2GatedRMSNorm(AXK2Config(hidden_size=16, gated_norm_rank=3))
    norm, gate, x = block.ffn_residual.norm_in, block.gates.ffn, random_stream(7, 16).float()
    with torch.no_grad():
        theirs.norm.weight.copy_(norm.gain)
        theirs.mlp.fc1.weight.copy_(gate.down.weight)
        theirs.mlp.fc2.weight.copy_(gate.up.weight)
        theirs.norm.variance_epsilon = norm.eps
        torch.testing.assert_close(gate(norm(x)), theirs(x))


def test_only_the_branches_that_are_asked_for_have_one_and_pay_for_it() -> None:
    model = zoo.build(small(**{"block.gated_norm": {"rank": 3, "before": ["ffn"]}}))
    assert {name for name, _ in model.named_parameters() if "gates" in name} == {
        f"blocks.{i}.gates.ffn.{part}.weight" for i in range(2) for part in ("down", "up")
    }
    plain, gated = zoo.cost(small(**{"block.gated_norm": None})), zoo.cost(model.spec)
    assert gated.params - plain.params == 2 * 2 * 3 * 16
    assert gated.flops_per_token - plain.flops_per_token == 6 * 2 * 2 * 3 * 16


def test_a_gate_needs_a_branch() -> None:
    with pytest.raises(zoo.SpecError, match=r"block\.gated_norm\.before: the block has no ffn; use before: \[mixer\]"):
        small(**{"block.ffn": "none"})
    with pytest.raises(zoo.SpecError, match=r"block\.gated_norm\.before: must name a branch"):
        small(**{"block.gated_norm": {"before": []}})
