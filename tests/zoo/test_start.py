"""Every model starts where it knows nothing: at a loss of log V, on random tokens and on text full of repetitions."""

from __future__ import annotations

import inspect
import math
import textwrap
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import zoo
from tests.many import few
from tests.zoo.worked_out import rows_and_opening
from zoo.conformance.combinations import given_to, random_tokens
from zoo.conformance.matrix import combine
from zoo.conformance.shrink import shrink
from zoo.init import ExpertLinear, Linear, roles
from zoo.norms import Norm
from zoo.norms.partial_rmsnorm import PartialRMSNorm
from zoo.presets import names as preset_names
from zoo.presets import preset

NATS = 0.1
BYTES = torch.tensor(list(inspect.getsource(textwrap).encode()))
"""Python source, where every fifth byte repeats the one before: a tied table that favours the token it has just read
would start far from log V here."""

QUIET = 0.5 / 32**0.5
"""Factor on the initial scale of a tied head in a model of 32 features."""
PLACEMENTS = ("pre", "post", "double", "output", "peri", "normed", "deepnorm", "hyper_connections")


def specs() -> list[zoo.ModelSpec]:
    """Specs of the rows of the covering array."""
    return [combine(row.values()) for row in rows_and_opening()[0]]


def start_loss(spec: zoo.ModelSpec, rows: Tensor, seed: int = 0) -> float:
    model = zoo.build(spec, seed=seed).eval()
    tokens, targets = rows[:, :-1], rows[:, 1:]
    with torch.no_grad():
        logits = model(tokens, **given_to(spec, *tokens.shape))
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten()).item()


def excess_on_random_tokens(spec: zoo.ModelSpec, seed: int = 0) -> float:
    return start_loss(spec, random_tokens(spec, 32, 20), seed) - math.log(spec.vocab_size)


def excess_on_text(spec: zoo.ModelSpec, seed: int = 0) -> float:
    return start_loss(spec.edit({"vocab_size": 256}), BYTES[: 32 * 20].view(32, 20), seed) - math.log(256)


def reads_what_no_norm_bounds(spec: zoo.ModelSpec) -> bool:
    """Whether a tied table reads a stream, or the sum of n, that grows with the depth and with what the branches do:
    the one thing that no rule for initial values can foresee. Features of the whole model may add to it behind the
    last layer's norm."""
    normed = spec.has_final_norm or spec.head_transform is not None or spec.ends_normalised
    return spec.tie_embeddings and not (normed and bounds(spec.block.norm))


def bounds(norm: Norm) -> bool:
    """Whether what a norm gives has a bound. Of a partial norm it has none: behind a rectifier the features that it
    reads can all be near zero while the others are not."""
    return norm.normalises and not (isinstance(norm, PartialRMSNorm) and norm.fraction < 1)


def start_at_log_v(specs: Iterable[zoo.ModelSpec]) -> None:
    for spec in specs:
        if not reads_what_no_norm_bounds(spec):
            assert abs(excess_on_random_tokens(spec)) <= NATS, spec
            assert abs(excess_on_text(spec)) <= NATS, spec


@pytest.mark.slow
def test_every_combination_starts_at_log_v() -> None:
    start_at_log_v(specs())


def test_a_partial_norm_bounds_nothing() -> None:
    x = torch.tensor([0.0, 0.0, 1.0, -1.0])
    assert PartialRMSNorm(fraction=0.5).build(4)(x).abs().max() > 100
    assert PartialRMSNorm(fraction=1.0).build(4)(x).abs().max() <= 2


@pytest.mark.slow
def test_of_the_others_few_start_elsewhere() -> None:
    every = specs()
    others = [spec for spec in every if reads_what_no_norm_bounds(spec)]
    assert len(others) < len(every) / 5
    far = [spec for spec in others if max(map(abs, (excess_on_random_tokens(spec), excess_on_text(spec)))) > NATS]
    assert len(far) < len(others) / 5


def test_every_preset_starts_at_log_v() -> None:
    for name in preset_names():
        if preset(name).buildable:
            spec = shrink(zoo.load(name))
            assert abs(excess_on_random_tokens(spec)) <= NATS, name
            assert abs(excess_on_text(spec)) <= NATS, name


@pytest.mark.parametrize("d_model", few([64, 256], 1))
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("rule", ["scaled", "plain", "zero"])
def test_every_placement_starts_at_log_v_at_the_sizes_of_studies(placement: str, d_model: int, rule: str) -> None:
    edits: dict[str, Any] = {"block.norm_placement": placement, "init.output": rule}
    spec = zoo.load("small", d_model=d_model, n_layers=4, **edits)
    for start in (excess_on_random_tokens(spec), excess_on_text(spec)):
        assert abs(start) <= NATS


def test_without_the_rule_a_tied_table_favours_the_token_it_has_just_read() -> None:
    spec = zoo.load("small", d_model=64, **{"init.tied_head": None})
    assert excess_on_random_tokens(spec) > 1


@pytest.mark.parametrize("norm", ["rmsnorm", "layernorm", "l2norm", "partial_rmsnorm", "dyt"])
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_the_gain_that_a_tied_table_reads_starts_small_and_all_else_as_ever(norm: str, placement: str) -> None:
    spec = zoo.load("small", d_model=32, n_layers=2, **{"block.norm": norm, "block.norm_placement": placement})
    assert_differ_by(spec, "norm.gain" if placement == "pre" else "blocks.1.ffn_residual.norm_after.gain", QUIET)


def test_the_gain_starts_small_where_the_mixer_writes_last() -> None:
    spec = zoo.load("small", d_model=32, n_layers=2, **{"block.ffn": "none", "block.norm_placement": "post"})
    assert_differ_by(spec, "blocks.1.mixer_residual.norm_after.gain", QUIET)


def test_the_gain_starts_small_where_attention_to_the_encoder_writes_last() -> None:
    edits = {"block.ffn": "none", "block.norm_placement": "post", "encoder": {"n_layers": 1}}
    spec = zoo.load("small", d_model=32, n_layers=2, **edits)
    assert_differ_by(spec, "blocks.1.cross_residual.norm_after.gain", QUIET)


def test_a_gain_that_adds_to_one_is_small_in_all() -> None:
    for norm in ({"kind": "rmsnorm", "unit_offset": True}, {"kind": "layernorm", "unit_offset": True}):
        model = zoo.build(zoo.load("small", d_model=32, n_layers=2, **{"block.norm": norm}))
        assert model.get_parameter("norm.gain").tolist() == pytest.approx([QUIET - 1] * 32)
        assert not model.get_parameter("blocks.1.ffn_residual.norm_in.gain").any()


@pytest.mark.parametrize(
    "edits",
    [
        {"block.norm": {"kind": "layernorm", "gain": False, "bias": False}},
        {"block.norm_placement": "post", "sharing": {"blocks": 1}},
    ],
    ids=str,
)
def test_without_a_gain_of_its_own_the_table_starts_small(edits: dict[str, Any]) -> None:
    """The last norm has no gain, or the other layers read it too."""
    assert_differ_by(zoo.load("small", d_model=32, n_layers=2, **edits), "embedding.weight", QUIET)


@pytest.mark.parametrize("edits", [{"block.norm": "none"}, {"final_norm": False}], ids=str)
def test_without_a_norm_the_table_starts_smaller_still(edits: dict[str, Any]) -> None:
    assert_differ_by(zoo.load("small", d_model=32, n_layers=2, **edits), "embedding.weight", QUIET / 2)


@pytest.mark.parametrize(("scale", "gain"), [(1.0, QUIET), (0.25, 4 * QUIET), (32**-0.5, 0.5), (0.01, 1.0)])
def test_a_multiplier_of_the_logits_counts(scale: float, gain: float) -> None:
    """The product starts the same, and the gain is not raised above one to make it so."""
    model = zoo.build(zoo.load("small", d_model=32, n_layers=1, logit_scale=scale))
    assert model.get_parameter("norm.gain").tolist() == pytest.approx([gain] * 32)


def test_an_untied_head_starts_at_zero_and_changes_nothing_else() -> None:
    spec = zoo.load("small", d_model=32, n_layers=2, tie_embeddings=False)
    assert_differ_by(spec, None, QUIET)


def assert_differ_by(spec: zoo.ModelSpec, name: str | None, factor: float) -> None:
    """From the model that starts without the rule: by a factor on one parameter, and in nothing else."""
    plain = dict(zoo.build(spec.edit({"init.tied_head": None})).named_parameters())
    for own, parameter in zoo.build(spec).named_parameters():
        expected = plain[own] * factor if own == name else plain[own]
        torch.testing.assert_close(parameter, expected, rtol=1e-6, atol=0)
    assert name is None or name in plain


def test_an_initial_value_of_what_a_module_does_not_own_is_refused() -> None:
    class Gated(nn.Module):
        initial: ClassVar = {"gate.bias": 3.0}

        def __init__(self) -> None:
            super().__init__()
            self.gate = Linear(2, 3, bias=True, role="input")

    words = r"^`initial` of Gated names 'gate.bias', .* of its own: set it in .*, `self.gate.initial = {'bias': …}`$"
    with pytest.raises(ValueError, match=words):
        roles(Gated())
    Gated.initial = {"gate": 3.0}
    with pytest.raises(ValueError, match=r"`self.gate.initial = {'bias': …}`$"):
        roles(Gated())


@pytest.mark.parametrize("table", ["initial", "initial_std"])
def test_an_initial_value_of_a_misspelt_parameter_is_refused(table: str) -> None:
    layer = Linear(2, 3, bias=True, role="input")
    setattr(layer, table, {"biass": 3.0})
    with pytest.raises(ValueError, match=rf"^`{table}` of Linear names 'biass', .* \(did you mean 'bias'\?\)$"):
        roles(layer)


class Remembering(nn.Module):
    """A module with something else by the name `initial`: a learned first state."""

    roles: ClassVar = {"initial": "input"}

    def __init__(self) -> None:
        super().__init__()
        self.initial = nn.Parameter(torch.ones(3))


def test_a_parameter_may_be_called_initial() -> None:
    assert roles(Remembering()) == {"initial": "input"}


class Banana(nn.Module):
    """A module whose parameter has a role that there is not."""

    roles: ClassVar = {"gain": "banana"}

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(3))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Linear(2, 3, role="banana"),  # type: ignore[arg-type]
        lambda: ExpertLinear(2, 2, 3, role="banana"),  # type: ignore[arg-type]
        lambda: roles(Banana()),
    ],
    ids=["linear", "experts", "declared"],
)
def test_a_role_without_a_rule_is_refused(make: Callable[[], object]) -> None:
    words = "^unknown role 'banana': one of embedding, input, output, head, gain, bias$"
    with pytest.raises(ValueError, match=words):
        make()
