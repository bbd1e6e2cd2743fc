"""Conformance of every model, whatever it is made of: the checks of `zoo.conformance` on a covering array."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch

import zoo
from tests.many import assert_all
from tests.zoo.worked_out import legal_pairs, rows_and_opening
from zoo.conformance import checks
from zoo.conformance.checking import conforms, notes_on
from zoo.conformance.checks import CHECKS
from zoo.conformance.combinations import choices, covering, paired, random_model, random_tokens
from zoo.conformance.flops import flops
from zoo.conformance.matrix import combine
from zoo.conformance.subject import LENGTH, CheckSubject, ConformanceError
from zoo.init import Linear
from zoo.mixers import MixerLayer
from zoo.mixers.attention import AttentionLayer
from zoo.mixers.mla import MLA
from zoo.settings.axis import variants
from zoo.site import LayerSite

PARTS = 16
"""Number of parts of a suite, which can run side by side. None knows its rows until it runs: they take long."""


CORE = (
    "norm", "norm_placement", "topology", "mixer", "mixer.kv_heads", "mixer.window", "mixer.qk_norm",
    "mixer.position", "mixer.position.scaling", "ffn", "tie_embeddings", "pattern",
)  # fmt: skip
"""The axes of which every three choices are tried."""


def others() -> list[int]:
    """The rows that the slow suite tries, of which each brings few new pairs together."""
    rows, opening = rows_and_opening()
    return [number for number in range(len(rows)) if number not in opening]


def spec_of(number: int) -> zoo.ModelSpec:
    return combine(rows_and_opening()[0][number].values())


def test_three_in_four_pairs_meet_by_default_and_the_others_in_the_slow_suite() -> None:
    """Of choices that are `paired`. And every choice is tried by default."""
    rows, opening = rows_and_opening()
    met = {frozenset(pair) for number in opening for pair in itertools.combinations(rows[number].values(), 2)}
    possible = set(paired(legal_pairs()))
    assert len(met & possible) >= 0.75 * len(possible)
    assert sorted([*opening, *others()]) == list(range(len(rows)))
    tried = {option for number in opening for option in rows[number].values()}
    assert tried == set(itertools.chain(*choices().values()))


THOROUGH = 6
"""One in this many of the rows that are tried by default is tried thoroughly, and in the slow suite every row."""


@pytest.mark.parametrize("part", range(PARTS))
def test_models_conform(part: int) -> None:
    def check_all(number: int) -> None:
        subject = CheckSubject(spec_of(number), thorough=number % THOROUGH == 0)
        assert_all(lambda check: check(subject), CHECKS)

    assert_all(check_all, rows_and_opening()[1][part::PARTS])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_models_conform_thoroughly(part: int) -> None:
    assert_all(lambda number: conforms(spec_of(number)), range(part, len(rows_and_opening()[0]), PARTS))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_three_core_choices_conform(part: int) -> None:
    for row in covering(3, CORE)[part::PARTS]:
        conforms(combine(row.values()))


SMALL = zoo.load("small", **{"vocab_size": 61, "d_model": 24, "n_layers": 2, "block.mixer.heads": 4})


def spoilt(how: Callable[[zoo.Decoder], None]) -> CheckSubject:
    """A subject with a fault."""
    subject = CheckSubject(SMALL)
    with torch.no_grad():
        how(subject.model)
    return subject


def sees_all(model: zoo.Decoder) -> None:
    model.blocks[0].register_forward_hook(lambda _, args, out: out + args[0].mean(1, keepdim=True))


def has_more(model: zoo.Decoder) -> None:
    model.register_parameter("more", torch.nn.Parameter(torch.zeros(3)))


def is_not_a_number(model: zoo.Decoder) -> None:
    next(model.parameters()).fill_(torch.nan)


@pytest.mark.parametrize(
    ("check", "fault", "words"),
    [
        (checks.causality, sees_all, "token 7 changes logits of earlier tokens"),
        (
            checks.caching,
            sees_all,
            r"logits with a cache \(chunks of \[6, 1, 1, 9, 2\] tokens\) and without one differ by",
        ),
        (checks.left_padding, sees_all, r"tokens of left padding and without \(see `on_text`\) differ"),
        (checks.parameters, has_more, r"declared parameters \(by `cost`\): .*, not "),
        (checks.shape, is_not_a_number, "logits are not finite"),
    ],
)
def test_a_fault_is_found(
    check: Callable[[CheckSubject], None], fault: Callable[[zoo.Decoder], None], words: str
) -> None:
    check(CheckSubject(SMALL))
    with pytest.raises(ConformanceError, match=words):
        check(spoilt(fault))


@pytest.mark.parametrize("edits", [{}, {"block.canon": {}}, {"block.mixer.conv": 3}], ids=str)
def test_what_a_mixer_caches_and_does_not_declare_is_named(
    monkeypatch: pytest.MonkeyPatch, edits: dict[str, object]
) -> None:
    spec = SMALL.edit(edits)
    checks.cache_bytes(CheckSubject(spec))
    monkeypatch.setattr(type(spec.block.mixer), "cached", lambda self: ())
    monkeypatch.setattr(type(spec.block.mixer), "cache_elements", lambda self, capacity: 12 * capacity)
    monkeypatch.setattr(AttentionLayer, "new_cache", with_buffers(AttentionLayer.new_cache))
    words = re.escape(
        "`cached` of the mixer attention, the (heads, features) of its TokenCache: (), not ((4, 6), (4, 6))"
    )
    with pytest.raises(ConformanceError, match=words):
        checks.cache_bytes(CheckSubject(spec))


def with_buffers(new_cache: Callable[..., Any]) -> Callable[..., Any]:
    """new_cache of a layer whose spec declares no buffers."""

    def made(layer: Any, *sizes: Any) -> Any:
        with patch.object(type(layer.spec), "cached", lambda self: ((4, 6), (4, 6))):
            return new_cache(layer, *sizes)

    return made


def test_a_wrong_cost_and_a_silent_parameter_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = zoo.cost(SMALL, context=LENGTH)
    wrong = SimpleNamespace(
        params=cost.params,
        flops_per_token=cost.flops_per_token,
        flops_per_token_executed=cost.flops_per_token_executed + 2,
        flops_per_token_square=cost.flops_per_token_square,
        flops_per_step=cost.flops_per_step,
        cache_bytes=lambda **_: 12,
    )
    monkeypatch.setattr(zoo, "cost", lambda *_, **__: wrong)
    with pytest.raises(ConformanceError, match="FLOPs per token executed: declared"):
        flops(CheckSubject(SMALL))
    with pytest.raises(
        ConformanceError, match=r"`cache_elements` says 12 bytes in torch\.float32, but [\d,]+ are allocated$"
    ):
        checks.cache_bytes(CheckSubject(SMALL))
    monkeypatch.setattr(checks, "silent_parameters", lambda *_: {"blocks.0.mixer.q.weight"})
    with pytest.raises(ConformanceError, match=r"no gradient for blocks\.0\.mixer\.q\.weight"):
        checks.gradients(CheckSubject(SMALL))


def has_no_loss(model: zoo.Decoder) -> None:
    model.embedding.weight.data.fill_(torch.inf)


def has_no_finite_gradient(model: zoo.Decoder) -> None:
    model.embedding.weight.register_hook(lambda gradient: gradient * torch.nan)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (has_no_loss, "the loss is not finite: nan"),
        (has_no_finite_gradient, r"gradients are not finite: those of embedding\.weight$"),
    ],
)
def test_what_is_not_finite_is_not_said_to_have_no_gradient(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[zoo.Decoder], None], words: str
) -> None:
    def broken(*given: Any) -> zoo.Decoder:
        model = random_model(*given)
        fault(model)
        return model

    monkeypatch.setattr("zoo.conformance.flops.random_model", broken)
    with pytest.raises(ConformanceError, match=words):
        checks.gradients(CheckSubject(SMALL))


@pytest.mark.parametrize("placement", ["hyper_connections", "rezero"])
def test_a_random_model_that_no_norm_bounds_is_finite(placement: str) -> None:
    """Gated FFNs square what they read, in each of eight layers."""
    placed = {"kind": placement, "stream_scale": 1.25}
    spec = SMALL.edit({"n_layers": 8, "block.norm": {"kind": "none"}, "block.norm_placement": placed})
    for seed in range(4):
        tokens = random_tokens(spec, 2, LENGTH)
        with torch.no_grad():
            assert random_model(spec, seed).stream(tokens).abs().max() < 1e5
    checks.gradients(CheckSubject(spec))


def test_a_model_that_is_never_finite_is_drawn_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checks then say so."""
    monkeypatch.setattr(zoo.Decoder, "stream", lambda *_, **__: torch.tensor(torch.nan))
    random_model(SMALL.edit({"block.norm": {"kind": "none"}}))


def test_values_that_nothing_marks_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [notes_on(kind) for kind in variants("zoo.mixers")] == [[]] * len(variants("zoo.mixers"))
    assert notes_on("rmsnorm") == []
    build = MLA.build

    def unmarked(spec: MLA, site: LayerSite) -> MixerLayer:
        layer = build(spec, site)
        for module in layer.modules():
            if isinstance(module, Linear):
                module.values = False
        return layer

    monkeypatch.setattr(MLA, "build", unmarked)
    (note,) = notes_on("mla")
    assert note.startswith("no Linear of MLALayer has values=True: DeepNorm")
