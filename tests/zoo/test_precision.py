"""The fence round a stretch of the graph: which setting is in force where, and that values stay the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.attend import attend
from zoo.attending.visible import Scoring, Visible
from zoo.kernels.precision import at_default_precision


class Spy(torch.autograd.Function):
    """The identity; notes the setting that it runs under."""

    seen: list[tuple[str, str, str]] = []  # noqa: RUF012 (cleared by each test)

    @staticmethod
    def forward(ctx: Any, x: Tensor, place: str) -> Tensor:
        ctx.place = place
        Spy.seen.append(("forward", place, torch.get_float32_matmul_precision()))
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        Spy.seen.append(("backward", ctx.place, torch.get_float32_matmul_precision()))
        return gradient, None


@pytest.fixture(autouse=True)
def medium() -> Iterator[None]:
    Spy.seen.clear()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision("highest")


def test_inside_is_the_default_and_outside_is_not() -> None:
    x = torch.randn(3, requires_grad=True)
    y = Spy.apply(x, "before")
    z = at_default_precision(lambda t: Spy.apply(t, "inside"), y)
    Spy.apply(z, "after").sum().backward()
    assert Spy.seen == [
        ("forward", "before", "medium"),
        ("forward", "inside", "highest"),
        ("forward", "after", "medium"),
        ("backward", "after", "medium"),
        ("backward", "inside", "highest"),
        ("backward", "before", "medium"),
    ]
    assert torch.get_float32_matmul_precision() == "medium"


@torch.library.custom_op("tests::witness", mutates_args=())
def witness(x: Tensor, place: str) -> Tensor:
    """The identity as a node of a compiled program; notes the setting that it runs under."""
    Spy.seen.append(("runs", place, torch.get_float32_matmul_precision()))
    return x.clone()


witness.register_fake(lambda x, place: torch.empty_like(x))
witness.register_autograd(lambda ctx, gradient: (witness(gradient, "backward"), None))


def test_inside_a_compiled_program_it_is_the_same() -> None:
    """Forwards and backwards, whichever of the inputs want gradients."""

    def stretch(x: Tensor, y: Tensor) -> Tensor:
        return at_default_precision(lambda x, y: witness(x * y, "inside"), x, y) * 2

    program = torch.compile(stretch, backend="aot_eager", fullgraph=True)
    for needs in ((True, True), (False, True), (False, False)):
        Spy.seen.clear()
        x, y = (torch.randn(3).requires_grad_(each) for each in needs)
        found = program(x, y)
        torch.testing.assert_close(found, x * y * 2)
        assert torch.get_float32_matmul_precision() == "medium"
        assert Spy.seen == [("runs", "inside", "highest")]
        if any(needs):
            found.sum().backward()
            torch.testing.assert_close(y.grad, 2 * x.detach())
            assert Spy.seen[1:] == [("runs", "backward", "highest")]
            assert torch.get_float32_matmul_precision() == "medium"


def test_a_program_compiled_at_the_default_has_no_nodes_and_is_compiled_again_after_a_change() -> None:
    targets: list[str] = []

    def record(graph: torch.fx.GraphModule, _: list[Tensor]) -> torch.fx.GraphModule:
        targets.append(" ".join(str(node.target) for node in graph.graph.nodes))
        return graph

    program = torch.compile(lambda x: at_default_precision(lambda y: y * 2, x), backend=record, fullgraph=True)
    for setting in ("highest", "medium"):
        torch.set_float32_matmul_precision(setting)
        program(torch.ones(3))
    assert ["begin_default_precision" in each for each in targets] == [False, True]


@pytest.mark.parametrize("needs", [(True, True, True), (False, True, False)])
def test_attention_and_its_gradients_are_unchanged(needs: tuple[bool, ...]) -> None:
    draw = torch.Generator().manual_seed(0)
    inputs = [torch.randn(2, 4, 16, 8, generator=draw).requires_grad_(n) for n in needs]
    found = at_default_precision(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *inputs)
    wanted = [x for x in inputs if x.requires_grad]
    gradients = torch.autograd.grad(found.square().sum(), wanted)
    assert torch.get_float32_matmul_precision() == "medium"
    torch.set_float32_matmul_precision("highest")
    expected = F.scaled_dot_product_attention(*inputs, is_causal=True)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    for one, other in zip(gradients, torch.autograd.grad(expected.square().sum(), wanted), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_the_setting_comes_back_after_an_error_and_without_gradients() -> None:
    def fail(_: Tensor) -> Tensor:
        raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        at_default_precision(fail, torch.ones(1))
    assert torch.get_float32_matmul_precision() == "medium"
    with torch.inference_mode():
        at_default_precision(lambda t: Spy.apply(t, "inside"), torch.ones(1))
    assert Spy.seen == [("forward", "inside", "highest")]
    assert torch.get_float32_matmul_precision() == "medium"


LENGTH = 64
SCORINGS = {
    "scale": {},
    "softcap": {"softcap": 5.0},
    "sinks": {"sinks": torch.tensor([0.5, -1.0])},
    "learned bias": {"bias": torch.linspace(-3, 3, 2 * LENGTH**2).view(2, LENGTH, LENGTH).requires_grad_()},
}


@pytest.mark.parametrize("scoring", SCORINGS)
def test_scores_are_not_rounded_under_autocast(scoring: str) -> None:
    """Against float64, attention that torch's kernels cannot do errs no more than what they can do."""
    torch.set_float32_matmul_precision("highest")
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(4, 2, LENGTH, 16, generator=draw).bfloat16() for _ in range(3))
    how, index = Scoring(scale=1.0, **SCORINGS[scoring]), torch.arange(LENGTH)
    exact = attend(q.double(), k.double(), v.double(), Visible(index, index), how)
    with torch.autocast("cpu", torch.bfloat16):
        found = attend(q, k, v, Visible(index, index), how)
    assert found.dtype == torch.bfloat16
    assert rms(found.double() - exact) <= 1.1 * rms(exact.bfloat16().double() - exact)


def rms(error: Tensor) -> float:
    return error.square().mean().sqrt().item()
