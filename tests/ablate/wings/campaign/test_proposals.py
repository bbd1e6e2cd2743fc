"""Decisions on proposals: by hand, and over simulated campaigns, of which the share of false keeps is counted."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from scipy import stats

import ablate
from ablate.wings.campaign.campaign_log import ProposalOutcome, ProposalRecord, ProposalTest
from ablate.wings.campaign.campaign_page import campaign_page, headline, steps
from ablate.wings.campaign.proposals import (
    LEAST_SEEDS,
    MOST_SEEDS,
    compared,
    confirm,
    is_hopeless,
    kept,
    latest,
    p_values,
    rule,
)
from ablate.wings.campaign.proposals import tested as proposal_test
from ablate.wings.compare.losses import ArmLosses, noise_of
from ablate.wings.promoting import changes
from store.documents import StudyTrial, StudyTuning
from tests.moderated import moderated
from tests.reports.browsing import no_chromium, playwright, visit

WORTH = 0.01
SIGMA = 0.012


def losses_of(name: str, draw: np.random.Generator, seeds: int, effect: float = 0.0) -> ArmLosses:
    own = 3.0 + effect + SIGMA * draw.standard_normal(seeds)
    return ArmLosses(name, dict(enumerate(own.tolist())), {})


def test_of(base: ArmLosses, change: ArmLosses) -> ProposalTest:
    return compared(base, change, noise_of((base, change)), "cpu", "study")


test_of.__test__ = False  # type: ignore[attr-defined]


def test_p_is_that_of_a_one_sided_test_with_moderated_variances() -> None:
    draw = np.random.default_rng(0)
    for effect in (-0.02, 0.0, 0.02):
        base, change = losses_of("base", draw, 6), losses_of("change", draw, 6, effect)
        found = test_of(base, change)
        expected = moderated({"base": base.judging, "change": change.judging}, "change", "base").better
        assert expected is not None
        assert found.p == pytest.approx(1 - expected.is_less(0.0))
        assert found.difference == pytest.approx(
            np.mean([*change.judging.values()]) - np.mean([*base.judging.values()])
        )


def test_decisions_by_hand() -> None:
    def ruled(difference: float | None, half: float, p: float | None, verdict: str = "", first: bool = False) -> str:
        ends = (None, None) if difference is None else (difference - half, difference + half)
        test = ProposalTest(
            scale="cpu",
            study="s",
            seeds=(1, 2, 3),
            difference=difference,
            low=ends[0],
            high=ends[1],
            p=p,
            verdict=verdict,
        )
        return rule(test, [], WORTH, first=first).decision

    # SAFFRON's first level at α = 0.1: (1 − ½) · 0.05 · 1/ζ(1.6) = 0.0109.
    assert ruled(-0.05, 0.02, 0.0108) == "keep"
    assert ruled(-0.05, 0.02, 0.0111) == "undecided"
    assert ruled(-0.006, 0.003, 0.001) == "discard"  # surely better, and by less than 0.01
    assert ruled(-0.012, 0.003, 0.001) == "keep"
    assert ruled(0.05, 0.02, 0.999) == "discard"
    assert ruled(0.0, 0.009, 0.5) == "discard"  # an improvement of 0.01 is excluded
    assert ruled(0.0, 0.05, 0.6) == "undecided"
    assert ruled(0.0, 0.05, 0.6, first=True) == "discard"
    assert ruled(None, 0, None, "diverged") == "discard"
    assert ruled(None, 0, None, "cannot tell") == "undecided"
    assert ruled(-0.05, 0.02, 0.001, "stalled") == "undecided"  # some of its seeds do not train


def test_rates_that_bound_nothing_are_said_at_the_first_look() -> None:
    """No seed trained at any rate: more seeds would not tell either."""
    failed = StudyTrial(settings={"train.lr": 1e-2}, losses=(4.2,), runs=("a",), stalled=1)
    draw = np.random.default_rng(2)
    base, change = losses_of("base", draw, 3), losses_of("change", draw, 3, -0.1)
    told = {"chosen": {"train.lr": 1e-2}, "curve": (), "fraction": 1.0, "trials": (failed,), "coarse": ()}
    tuning = [
        StudyTuning(arm=name, edges=("train.lr",), reason="no seed trained", **told) for name in ("base", "change")
    ]
    rows = [
        {"arm": arm.name, "seed": seed, "status": "finished", "loss": loss}
        for arm in (base, change)
        for seed, loss in arm.judging.items()
    ]
    study = SimpleNamespace(baseline="base", tuning=tuning, scale="cpu", name="study")
    test = proposal_test(SimpleNamespace(study=study, runs=pl.DataFrame(rows)), "change")  # type: ignore[arg-type]
    assert test.untold == "base: no seed trained; change: no seed trained"
    assert is_hopeless(test)
    ruling = rule(test, [], WORTH, first=True)
    assert ruling.decision == "undecided"
    assert "no seed trained" in ruling.reason


def test_a_second_scale_must_agree() -> None:
    draw = np.random.default_rng(1)
    base = losses_of("base", draw, 8)
    better, worse = losses_of("c", draw, 8, -0.1), losses_of("c", draw, 8, 0.1)
    first = rule(test_of(base, better), [], WORTH)
    assert first.decision == "keep"
    assert confirm(first, test_of(base, better)).decision == "keep"
    assert confirm(first, test_of(base, worse)).decision == "discard"
    assert confirm(first, test_of(base, losses_of("c", draw, 8, 0.0))).decision in ("undecided", "discard")


def campaign(draw: np.random.Generator, effects: list[float]) -> list[str]:
    """Decisions on proposals with these true effects, as `ablate judge` makes them."""
    found, p_values = [], list[float]()
    for effect in effects:
        base, change = losses_of("base", draw, MOST_SEEDS), losses_of("change", draw, MOST_SEEDS, effect)
        early = test_of(_first(base), _first(change))
        test = early if is_hopeless(early) else test_of(base, change)
        found.append(rule(test, p_values, WORTH, first=test is early).decision)
        p_values.append(1.0 if test.p is None else test.p)
    return found


def _first(arm: ArmLosses) -> ArmLosses:
    return ArmLosses(arm.name, dict(list(arm.judging.items())[:LEAST_SEEDS]), {})


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_at_most_a_tenth_of_what_campaigns_keep_is_nothing() -> None:
    """20 campaigns of 200 proposals, one in ten worth 0.05 nats, beside the rule that keeps whatever improves."""
    draw = np.random.default_rng(2)
    true, false, missed, naive_false, naive_true = 0, 0, 0, 0, 0
    for _ in range(20):
        effects = np.where(draw.random(200) < 0.1, -0.05, 0.0)
        decisions = campaign(draw, effects.tolist())
        keeps = np.array([decision == "keep" for decision in decisions])
        true, false = true + int((keeps & (effects < 0)).sum()), false + int((keeps & (effects == 0)).sum())
        missed += int((~keeps & (effects < 0)).sum())
        one_seed = draw.normal(effects, SIGMA * np.sqrt(2)) < 0
        naive_false += int((one_seed & (effects == 0)).sum())
        naive_true += int((one_seed & (effects < 0)).sum())
    print(
        f"kept {true} of {true + missed}, {false} false; any improvement of one seed: {naive_true}, {naive_false} false"
    )
    assert false <= 0.1 * (true + false)
    assert true >= missed
    assert naive_false > naive_true


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_campaigns_of_nothing_keep_next_to_nothing() -> None:
    """Where no change is worth anything, every keep is false: any at all in at most a tenth of campaigns."""
    draw = np.random.default_rng(3)
    wrong = sum("keep" in campaign(draw, [0.0] * 200) for _ in range(30))
    print(f"{wrong} of 30 campaigns keep something")
    assert wrong <= stats.binom.ppf(0.99, 30, 0.1)


def record(number: int, decision: str, difference: float, half: float = 0.01) -> ProposalRecord:
    test = ProposalTest(
        scale="cpu",
        study=f"judge-x-{number}",
        seeds=(1, 2, 3),
        difference=difference,
        low=difference - half,
        high=difference + half,
        p=0.001,
        verdict="better",
    )
    outcome = ProposalOutcome(
        decision=decision,  # type: ignore[arg-type]
        reason="<b>because</b>",
        test=test,
        level=0.01,
        confirmed=None,
        costs={},
        spent_seconds=1.0,
    )
    name = f"block.ffn.activation=number_{number}"
    edits = {"block.ffn": number}
    return ProposalRecord(
        at="2026-01-01T00:00:00+00:00",
        number=number,
        name=name,
        scale="cpu",
        edits=edits,
        alpha=0.1,
        base="b",
        outcome=outcome,
    )


def test_the_last_line_of_a_proposal_counts_and_improvements_add_up() -> None:
    begun = record(1, "keep", -0.05).model_copy(update={"outcome": None})
    records = latest([begun, record(2, "discard", 0.1), record(1, "keep", -0.05), record(3, "keep", -0.03)])
    assert [each.number for each in records] == [2, 1, 3]
    assert [each.number for each in kept(records)] == [1, 3]
    assert p_values(records) == [0.001] * 3
    last = steps(records)[-1]
    assert last.mean == pytest.approx(0.08)
    assert last.high - last.mean == pytest.approx(np.hypot(0.01, 0.01))
    assert headline(records) == "2 of 3 proposals kept: the base is 0.080 nats better (0.066 to 0.094)."
    assert headline([record(1, "discard", 0.1)]) == "None of 1 proposal was kept."


@pytest.mark.processes
@no_chromium
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_in_a_browser(browser: playwright.Browser, tmp_path, width: int) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "campaign.html"
    decisions = ["keep", "discard", "undecided", "keep"]
    path.write_text(campaign_page("x", [record(i, word, -0.02 * i) for i, word in enumerate(decisions, start=1)]))
    found = visit(browser, path, width)
    assert found.page.text_content(".answer").startswith("2 of 4 proposals kept")
    assert found.page.locator("table tbody tr").count() == 4
    assert found.page.locator(".improvement path.line").count() == 1
    assert found.page.evaluate("document.documentElement.scrollWidth") <= width
    assert "<b>because</b>" in found.page.text_content("table")  # as text
    assert found.messages == []
    found.page.close()


def test_a_change_that_is_no_edit_names_its_option() -> None:
    with pytest.raises(ablate.StudyError, match=r"^--change =post: expected key=value"):
        changes(["=post"])
