"""Loops of random depth against section 3.3 of arXiv:2502.05171: the number of turns, the gradients, the FLOPs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from scipy import integrate, stats

import zoo
from ablate.machine.numerics import Numerics
from ablate.training.loop import seed_step
from ablate.training.spec import TrainSpec
from ablate.wings.foretell.step_memory import foreseen
from zoo.conformance import checks
from zoo.conformance.combinations import random_model, random_tokens
from zoo.conformance.counting import counted
from zoo.conformance.subject import CheckSubject
from zoo.features.random_depth import RandomDepth

LOOP = {"blocks": 2, "prelude": 1, "coda": 1, "injection": True, "state_std": 0.5}


def looped(depth: dict[str, Any] | None, **edits: Any) -> zoo.ModelSpec:
    """A layer, three turns of two, a layer."""
    size = {"d_model": 16, "n_layers": 8, "vocab_size": 31, "block.mixer.heads": 2, "block.ffn.d_ff": 24}
    return zoo.load("small", **{**size, "sharing": {**LOOP, "random_depth": depth}, **edits})


@pytest.mark.parametrize(("mean", "spread", "backward"), [(32, 0.5, 8), (4, 0.5, 3), (3, 1.2, 6), (5, 0.01, 8)])
def test_the_expected_numbers_of_turns_are_those_of_the_distribution(mean: int, spread: float, backward: int) -> None:
    """E r and E min(r, k), by scipy's integral over e^τ and its sum over the Poisson distribution."""
    rate = stats.lognorm(s=spread, scale=math.exp(math.log(mean) - spread**2 / 2))

    def trained(x: float) -> float:
        return sum(min(n + 1, backward) * stats.poisson.pmf(n, x) for n in range(backward)) + backward * float(
            stats.poisson.sf(backward - 1, x)
        )

    low, high = rate.ppf([1e-12, 1 - 1e-12])
    expected, _ = integrate.quad(lambda x: trained(x) * rate.pdf(x), low, high, points=[mean], limit=200)
    forward, kept = RandomDepth(mean=mean, spread=spread, backward=backward).expected(7)
    assert forward == mean + 1
    assert kept == pytest.approx(expected, rel=1e-6)


def test_draws_have_the_mean_and_the_variance_of_the_paper() -> None:
    """Those of a Poisson distribution whose rate is log-normal: E r = r̄ + 1, Var r = r̄ + r̄² (e^σ² − 1)."""
    torch.manual_seed(0)
    draws = torch.tensor([RandomDepth(mean=8).draw(3) for _ in range(6000)], dtype=torch.float64)
    variance = 8 + 64 * math.expm1(0.25)
    assert draws.min() >= 1
    assert abs(float(draws.mean()) - 9) <= 4 * math.sqrt(variance / 6000)
    assert float(draws.var()) == pytest.approx(variance, rel=0.15)


def test_a_step_of_a_run_always_has_the_same_depth() -> None:
    """The depth is determined by (seed, step), in whichever order and process steps are taken."""

    def drawn(seed: int, step: int) -> int:
        seed_step(seed, step, "cpu")
        return RandomDepth(mean=32).draw(3)

    forward = [drawn(1, step) for step in range(1, 9)]
    assert forward == [drawn(1, step) for step in reversed(range(1, 9))][::-1]
    assert len(set(forward)) > 3
    assert forward != [drawn(2, step) for step in range(1, 9)]


@pytest.mark.parametrize(("turns", "kept"), [(5, 2), (1, 2), (4, 4)])
@pytest.mark.parametrize("edits", [{}, {"block.mixer.position": "t5", "n_layers": 7, "sharing.prelude": 0}], ids=str)
def test_gradients_go_through_the_last_turns_and_what_they_read(
    monkeypatch: pytest.MonkeyPatch, turns: int, kept: int, edits: dict[str, Any]
) -> None:
    """The loop written out, the state cut off before the last k turns; a table of biases learns from these too, though
    the turns before it read it first."""
    monkeypatch.setattr(RandomDepth, "draw", lambda *_: turns)
    model = random_model(looped({"backward": kept}).edit(edits)).double().train()
    tokens = random_tokens(model.spec, 2, 9)
    torch.manual_seed(3)
    found = model(tokens)
    found.square().sum().backward()
    ours = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()

    step = model.step(tokens, 0, None, {})
    blocks = [lambda x, block=block: block(x, model.step(tokens, 0, None, {})) for block in model.blocks]
    prelude = model.spec.sharing.prelude  # type: ignore[union-attr]
    e = model.embed(tokens, step)
    for block in blocks[:prelude]:
        e = block(e)
    torch.manual_seed(3)
    state = 0.5 * torch.randn_like(e)
    for turn in range(turns):
        state = state.detach() if turn == turns - kept else state
        state = model.loop.adapter(torch.cat((state, e.detach() if turn < turns - kept else e), dim=-1))
        for block in blocks[prelude : prelude + 2]:
            state = block(state)
    out = model.read_out(model.norm(blocks[-1](model.loop.norm(state))))
    torch.testing.assert_close(found, out, rtol=1e-9, atol=1e-9)
    out.square().sum().backward()
    theirs = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert ours.keys() == theirs.keys()
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, rtol=1e-7, atol=1e-9, msg=name)


@pytest.mark.parametrize(("turns", "kept"), [(1, 8), (3, 2), (6, 4)])
def test_declared_flops_are_those_counted_for_a_number_of_turns(
    monkeypatch: pytest.MonkeyPatch, turns: int, kept: int
) -> None:
    """Counted by torch, with whole score matrices; the numbers of turns are put in the place of their expectations."""
    monkeypatch.setattr(RandomDepth, "draw", lambda *_: turns)
    monkeypatch.setattr(RandomDepth, "expected", lambda *_: (turns, min(turns, kept)))
    spec = looped({"backward": kept})
    model, tokens = random_model(spec).train(), random_tokens(spec, 2, 12)
    with zoo.attention_backend("plain"), counted(model, passes=3) as count:
        model.loss(tokens[:, :-1], tokens[:, 1:])[0].backward()
    cost = zoo.cost(spec, context=11)
    assert count.total / 22 == pytest.approx(cost.flops_per_token_square, rel=1e-9)
    assert cost.flops_per_token_forward == zoo.cost(looped(None), context=11).flops_per_token_forward


@pytest.mark.slow
def test_memory_is_foreseen_for_the_turns_that_are_trained() -> None:
    """On tensors without data, where nothing can be drawn: turns without a gradient keep no activations."""
    train, here = TrainSpec(context=32, batch=4), Numerics("cpu", "float32", "highest")
    kept = {k: foreseen(looped({"mean": 20, "backward": k}), train, here).peak_memory_bytes for k in (2, 4, None)}
    two, four, every = (kept[k] or 0 for k in (2, 4, None))
    assert 0 < two < four < every
    # Each turn more that is trained keeps as much: of 21 expected turns, 17 more than four.
    assert (every - four) / (four - two) == pytest.approx(17 / 2, rel=0.05)


@torch.no_grad()
def test_evaluation_runs_the_turns_that_the_layers_are() -> None:
    spec = looped({})
    random, fixed = random_model(spec), random_model(looped(None))
    tokens = random_tokens(spec, 2, 9)
    assert torch.equal(random(tokens), fixed(tokens))
    assert spec.computation() == fixed.spec.computation()
    assert spec.digest != fixed.spec.digest


def test_a_model_of_random_depth_does_what_every_model_must() -> None:
    """But for its FLOPs, which are expected numbers."""
    subject = CheckSubject(looped({"mean": 2, "backward": 2}))
    for check in (checks.causality, checks.gradients, checks.caching, checks.left_padding, checks.parameters):
        check(subject)
    checks.saving(subject)
    checks.dumping(subject)


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        ({"sharing.injection": False, "sharing.state_std": 0.0}, "random_depth: needs injection: true"),
        ({"n_layers": 9}, "blocks: 7 layers are not a multiple of blocks = 2, as random_depth needs"),
        ({"layer_loss": 0.1}, "random_depth: layer_loss needs layers that run exactly once per pass"),
        (
            {"block.mixer.value_residual": True},
            "random_depth: block.mixer.value_residual needs keys or values of other layers",
        ),
        (
            {"block.mixer.position": "transformer_xl"},
            r"random_depth: block\.mixer\.position \(transformer_xl\) needs the same computation in training",
        ),
    ],
    ids=str,
)
def test_what_has_no_meaning_at_a_random_depth_is_refused(edits: dict[str, Any], reason: str) -> None:
    with pytest.raises(zoo.SpecError, match=rf"^sharing\.{reason}"):
        looped({}).edit(edits)
