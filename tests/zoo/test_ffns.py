"""Feed-forward layers against their formulas, and dropout."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import pytest
import torch
from transformers.activations import XIELUActivation

import zoo
from zoo.conformance.combinations import random_model, random_tokens
from zoo.ffns._activations import clamped_swiglu
from zoo.site import ForwardPass


def gelu(z: float) -> float:
    return z * 0.5 * (1 + math.erf(z / math.sqrt(2)))


def gelu_tanh(z: float) -> float:
    return 0.5 * z * (1 + math.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


OTHERS: dict[str, Callable[[float], float]] = {
    "relu2": lambda z: max(0.0, z) ** 2,
    "gelu_10": lambda z: min(10.0, gelu(z)),
    "hardswish": lambda z: z * min(max(z + 3, 0.0), 6.0) / 6,
    "laplace": lambda z: NormalDist(0.707107, 0.282095).cdf(z),
    "leaky_relu": lambda z: max(z, 0.01 * z),
    "linear": lambda z: z,
    "mish": lambda z: z * math.tanh(math.log1p(math.exp(z))),
    "relu6": lambda z: min(max(0.0, z), 6.0),
    "tanh": math.tanh,
}
CASES: list[tuple[dict[str, Any], Callable[[float], float], bool]] = [
    ({"kind": "relu"}, lambda z: max(0.0, z), False),
    ({"kind": "relu2"}, lambda z: max(0.0, z) ** 2, False),
    ({"kind": "silu"}, lambda z: z * sigmoid(z), False),
    ({"kind": "elu"}, lambda z: z if z > 0 else math.expm1(z), False),
    ({"kind": "gelu"}, gelu, False),
    ({"kind": "gelu", "approximate": "tanh"}, gelu_tanh, False),
    ({"kind": "gelu", "approximate": "sigmoid"}, lambda z: z * sigmoid(1.702 * z), False),
    ({"kind": "mlp"}, math.tanh, False),
    ({"kind": "mlp", "activation": "sigmoid"}, sigmoid, False),
    *(({"kind": "mlp", "activation": name}, scalar, False) for name, scalar in OTHERS.items() if name != "relu2"),
    ({"kind": "glu"}, sigmoid, True),
    *(({"kind": "glu", "activation": name}, scalar, True) for name, scalar in OTHERS.items()),
    ({"kind": "reglu"}, lambda z: max(0.0, z), True),
    ({"kind": "swiglu"}, lambda z: z * sigmoid(z), True),
    ({"kind": "geglu"}, gelu, True),
    ({"kind": "geglu", "approximate": "tanh"}, gelu_tanh, True),
    ({"kind": "geglu", "approximate": "sigmoid"}, lambda z: z * sigmoid(1.702 * z), True),
]


@pytest.mark.parametrize(("ffn", "scalar", "gated"), CASES, ids=lambda v: str(v) if isinstance(v, dict) else "")
@pytest.mark.parametrize("bias", [True, False])
def test_ffn_is_its_formula(ffn: dict[str, Any], scalar: Callable[[float], float], gated: bool, bias: bool) -> None:
    spec = zoo.load("small", d_model=8, n_layers=1, **{"block.ffn": {**ffn, "d_ff": 5, "bias": bias}})
    layer = random_model(spec).blocks[0].ffn.double()
    x = torch.randn(8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def apply(linear: torch.nn.Linear, vector: list[float]) -> list[float]:
        offset = linear.bias.tolist() if bias else [0.0] * linear.out_features
        rows = zip(linear.weight.tolist(), offset, strict=True)
        return [sum(w * v for w, v in zip(row, vector, strict=True)) + b for row, b in rows]

    up = apply(layer.up, x.tolist())
    if gated:
        hidden = [scalar(g) * u for g, u in zip(apply(layer.gate, x.tolist()), up, strict=True)]
    else:
        hidden = [scalar(u) for u in up]
    expected = torch.tensor(apply(layer.down, hidden), dtype=torch.float64)
    torch.testing.assert_close(layer(x[None, None], ForwardPass.of(x[None]))[0, 0], expected, rtol=1e-12, atol=1e-12)


def xielu_layer(**settings: Any) -> Any:
    spec = zoo.load("small", d_model=8, n_layers=1, **{"block.ffn": {"kind": "xielu", "d_ff": 6, **settings}})
    return zoo.build(spec).blocks[0].ffn


def test_xielu_is_its_formula_with_the_parameters_of_transformers() -> None:
    ours, theirs = xielu_layer().activation, XIELUActivation(dtype=torch.float32)
    z = torch.tensor([-1e4, -30.0, -2.0, -0.5, 0.0, 0.3, 4.0, 1e4])
    torch.testing.assert_close(ours(z), theirs(z))  # as they start: both α 0.8
    positive, negative = 0.7, -0.4
    with torch.no_grad():
        ours.positive.fill_(positive)
        ours.negative.fill_(negative)
        theirs.alpha_p.fill_(positive)
        theirs.alpha_n.fill_(negative)
    torch.testing.assert_close(ours(z), theirs(z))
    above, below = math.log1p(math.exp(positive)), 0.5 + math.log1p(math.exp(negative))
    expected = [above * v**2 + v / 2 if v > 0 else below * (math.expm1(v) - v) + v / 2 for v in z.tolist()]
    torch.testing.assert_close(ours(z), torch.tensor(expected))


def test_xielu_has_a_gradient_at_large_numbers() -> None:
    z = torch.tensor([-1e30, 200.0], requires_grad=True)
    xielu_layer().activation(z).sum().backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()


def test_xielu_has_no_threshold_at_zero() -> None:
    with pytest.raises(
        zoo.SpecError, match="sparsity: not supported with xielu: the threshold removes negative values"
    ):
        xielu_layer(sparsity=0.5)


def test_clamped_swiglu_is_its_formula() -> None:
    gates, ups = [-9.0, -1.0, 0.5, 6.9, 7.1, 20.0], [3.0, -20.0, 7.5, 1.0, -1.0, 20.0]
    expected = []
    for gate, up in zip(gates, ups, strict=True):
        g, u = min(gate, 7.0), max(-7.0, min(up, 7.0))
        expected.append(g * sigmoid(1.702 * g) * (u + 1))
    out = clamped_swiglu(torch.tensor(gates), torch.tensor(ups), alpha=1.702, limit=7.0)
    torch.testing.assert_close(out, torch.tensor(expected), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "ffn",
    [{"kind": "gelu"}, {"kind": "swiglu"}, {"kind": "topk_moe"}, {"kind": "deepseek_moe", "bias_rate": 0.0}],
    ids=str,
)
def test_hidden_dropout_acts_in_training_alone_and_keeps_the_mean(ffn: dict[str, Any]) -> None:
    spec = zoo.load("small", d_model=8, n_layers=1, **{"block.ffn": {**ffn, "d_ff": 6}})
    plain, dropped = random_model(spec), random_model(spec.edit({"block.ffn.dropout": 0.25}))
    x = torch.randn(1, 3, 8, generator=torch.Generator().manual_seed(0))
    step = ForwardPass.of(x[..., 0])
    expected = plain.blocks[0].ffn(x, step)
    assert torch.equal(dropped.blocks[0].ffn(x, step), expected)
    torch.manual_seed(0)
    ffn = dropped.train().blocks[0].ffn
    with torch.no_grad():
        drawn = torch.cat([ffn(x, step) for _ in range(1000)])
    assert drawn.std(0).min() > 0
    error = drawn.std(0) / math.sqrt(1000)
    assert ((drawn.mean(0) - expected[0]).abs() < 5 * error).all()


@pytest.mark.parametrize("topology", ["serial", "parallel", "parallel_two_norms"])
def test_branch_dropout_acts_in_training_alone_and_scales_what_it_keeps(topology: str) -> None:
    spec = zoo.load("small", d_model=16, n_layers=2, vocab_size=31, **{"block.topology": topology})
    dropped = spec.edit({"block.dropout": 0.5})
    plain, model, tokens = random_model(spec), random_model(dropped), random_tokens(spec, 2, 9)
    assert torch.equal(model(tokens), plain(tokens))
    assert not torch.equal(model.train()(tokens), plain(tokens))
    # Each feature of a branch's output is dropped, or doubled.
    block, step, x = model.blocks[0], ForwardPass.of(tokens), torch.randn(2, 9, 16)
    update = block.mixer_residual.update(x, lambda h: block.dropout(block.ffn(h, step)))
    whole = block.mixer_residual.update(x, lambda h: block.ffn(h, step))
    kept = update != 0
    assert 0.3 < kept.float().mean() < 0.7
    torch.testing.assert_close(update[kept], 2 * whole[kept])
