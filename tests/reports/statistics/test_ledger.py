"""The ledger: nothing that is dropped, added or repeated makes a p-value smaller, and error rates by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from reports.judge.statistics.estimates import holm
from reports.judge.statistics.ledger import Contrast, Judged, LedgerClaim, corrected, rounds
from reports.judge.verdicts import looks

THREE = frozenset(range(3))


def judged(arm: str, p: float | None, seeds: frozenset[int] | None = THREE) -> Judged:
    return Judged(LedgerClaim(Contrast(arm, "base"), seeds), p)


def test_a_study_judged_once_is_holm_at_four_per_cent() -> None:
    p = [0.004, 0.03, 0.2]
    found = corrected([[judged(name, value) for name, value in zip("abc", p, strict=True)]])
    assert list(found.values()) == pytest.approx([value / 0.8 for value in holm(p)])


def test_dropping_arms_changes_nothing() -> None:
    """Five of six arms dropped used to turn p = 0.083 into 0.017."""
    six = [judged("a", 0.0166), *(judged(f"null{i}", 0.3 + i / 10) for i in range(5))]
    assert holm([each.p for each in six if each.p])[0] == pytest.approx(6 * 0.0166)
    both = corrected([six, six[:1]])
    assert both == corrected([six])
    assert both[six[0].claim] == pytest.approx(6 * 0.0166 / 0.8)


def test_arms_and_seeds_that_come_later_are_rounds_of_their_own() -> None:
    first, fresh, added = judged("a", 0.03), judged("a", 0.004, frozenset({3, 4, 5})), judged("b", 0.001)
    assert corrected([[first], [fresh], [fresh, added]]) == {
        first.claim: pytest.approx(0.03 / 0.8),
        fresh.claim: pytest.approx(0.004 / 0.1),
        added.claim: pytest.approx(0.001 / (0.2 / 6)),
    }


@pytest.mark.parametrize("seeds", [frozenset(range(5)), frozenset({1, 2}), frozenset({2, 3, 4})])
def test_seeds_that_were_seen_give_no_second_fixed_sample_test(seeds: frozenset[int]) -> None:
    first, again = judged("a", 0.3), judged("a", 0.0001, seeds)
    assert corrected([[first], [again]]) == corrected([[first]])
    planned = judged("a", 0.2, None)
    assert corrected([[planned], [first]]) == corrected([[planned]])


PLANNED = looks(3, 8)
LOOKS = tuple(look.seeds for look in PLANNED)
FOUR = frozenset({1, 2, 3, 5})


@pytest.mark.parametrize(
    ("first", "again", "left_out"),
    [
        (LedgerClaim(Contrast("a", "base"), None, LOOKS), LedgerClaim(Contrast("a", "base"), FOUR), True),
        (LedgerClaim(Contrast("a", "base"), None, LOOKS), LedgerClaim(Contrast("a", "base"), None, (*LOOKS, 18)), True),
        (LedgerClaim(Contrast("a", "base"), frozenset(range(12))), LedgerClaim(Contrast("base", "a"), FOUR), True),
        (LedgerClaim(Contrast("a", "base"), THREE), LedgerClaim(Contrast("a", "base"), None, LOOKS), False),
        (LedgerClaim(Contrast("a", "base"), THREE), LedgerClaim(Contrast("a", "base"), THREE, margin=0.1), False),
        (LedgerClaim(Contrast("a", "base"), THREE), LedgerClaim(Contrast("a", "base"), FOUR, margin=0.1), True),
        (LedgerClaim(Contrast("a", "base"), THREE), LedgerClaim(Contrast("a", "other"), FOUR), False),
    ],
)
def test_seeds_are_chosen_before_they_are_seen_whatever_the_rule(
    first: LedgerClaim, again: LedgerClaim, left_out: bool
) -> None:
    """Another rule, another baseline or another margin make no fresh seeds, in this question or another."""
    assert (again not in corrected([[Judged(first, 0.5)], [Judged(again, 0.001)]])) == left_out
    assert (again not in corrected([[Judged(again, 0.001)]], elsewhere=[first])) == left_out


def test_what_was_looked_at_shares_the_round_of_the_first_verdict() -> None:
    """Three arms without p-values, of which one is kept: Holm over three, at the first round's 4 %."""
    looked = [judged(name, None) for name in "abc"]
    found = corrected([looked, [judged("a", 0.01)]])
    assert found[judged("a", 0.01).claim] == pytest.approx(3 * 0.01 / 0.8)
    more, fewer = (judged("a", 0.01, frozenset(range(n))) for n in (5, 2))
    assert corrected([looked, [more]])[more.claim] == pytest.approx(4 * 0.01 / 0.8)
    assert fewer.claim not in corrected([looked, [fewer]])


def test_a_test_in_planned_looks_stays_the_same_test_whatever_the_seeds() -> None:
    found = corrected([[judged("a", 0.3, None), judged("b", None, None)], [judged("a", 0.01, None)]])
    assert found[judged("a", 0.01, None).claim] == pytest.approx(2 * 0.01 / 0.8)
    assert found[judged("b", None, None).claim] is None


@given(st.lists(st.lists(st.tuples(st.integers(0, 8), st.floats(0, 1)), max_size=5), max_size=6))
def test_later_arms_never_take_back_a_verdict(history: list[list[tuple[int, float]]]) -> None:
    """Every test has one round; what is judged later changes no p-value of a fixed-sample test."""
    values = {number: p for judgement in reversed(history) for number, p in judgement}
    ledger = [[judged(str(number), values[number]) for number, _ in judgement] for judgement in history]
    claims = [claim for found in rounds(ledger) for claim in found]
    assert sorted(claim.contrast.arm for claim in claims) == sorted({str(n) for each in history for n, _ in each})
    for length in range(len(ledger)):
        before, after = corrected(ledger[:length]), corrected(ledger)
        assert all(after[test] == p for test, p in before.items())


def paired_p(differences: np.ndarray) -> np.ndarray:
    return np.asarray(stats.ttest_1samp(differences, 0.0, axis=-1).pvalue)


def planned_p(differences: np.ndarray) -> float:
    """At one of the looks that a study of three to eight seeds plans, of which each spends its own share of 5 %."""
    alpha = next(look.alpha for look in PLANNED if look.seeds == len(differences))
    return min(1.0, float(paired_p(differences)) * 0.05 / alpha)


def share_wrong(rejects: list[bool]) -> float:
    print(f"{np.mean(rejects):.4f} of {len(rejects)} studies name a difference")
    return float(stats.binomtest(sum(rejects), len(rejects), 0.05, alternative="greater").pvalue)


def significant(ledger: list[list[Judged]]) -> bool:
    return any(p is not None and p < 0.05 for p in corrected(ledger).values())


def kept_best(losses: np.ndarray) -> bool:
    """Six arms; then the best alone, as if the others had never been; then the best with more seeds, and fresh ones."""
    differences = losses[1:] - losses[0]
    best = int(paired_p(differences[:, :3]).argmin())
    first = [judged(str(i), float(paired_p(x[:3]))) for i, x in enumerate(differences)]
    chosen = [range(3), range(5), range(8), range(3, 6), range(6, 8)]
    more = [[judged(str(best), float(paired_p(differences[best, s])), frozenset(s))] for s in chosen]
    return significant([first, *more])


def until_one_wins(losses: np.ndarray) -> bool:
    """Arms that are added one by one."""
    p = paired_p(losses[1:, :3] - losses[0, :3])
    return significant([[judged(str(i), float(value))] for i, value in enumerate(p)])


def more_of_what_looks_good(losses: np.ndarray) -> bool:
    """One arm; where it looks good, for which an unlucky baseline may be the cause, all others at once."""
    p, better = paired_p(losses[1:, :3] - losses[0, :3]), losses[1, :3].mean() < losses[0, :3].mean()
    rest = [judged(str(i), float(value)) for i, value in enumerate(p) if i]
    return significant([[judged("0", float(p[0]))], *([rest] if p[0] < 0.2 and better else [])])


def hill_climbing(losses: np.ndarray) -> bool:
    """Two arms at first, then two more after each look; all are judged again at every look."""
    differences, ledger = losses[1:] - losses[0], []
    for number, seeds in enumerate(LOOKS, start=1):
        ledger.append([judged(str(i), planned_p(x[:seeds]), None) for i, x in enumerate(differences[: 2 * number])])
        if significant(ledger):
            return True
    return False


def picked_seeds(losses: np.ndarray) -> bool:
    """One arm on eight seeds, in planned looks; then on the four that look best, with either as the baseline."""
    differences = losses[1] - losses[0]
    best = np.argsort(differences)[:4]
    p, chosen = float(paired_p(differences[best])), frozenset(best.tolist())
    planned = Judged(LedgerClaim(Contrast("0", "base"), None, LOOKS), planned_p(differences))
    turned = Judged(LedgerClaim(Contrast("base", "0"), chosen), p)
    return significant([[planned], [judged("0", p, chosen)], [turned]])


def kept_best_unseen(losses: np.ndarray) -> bool:
    """Six arms that are looked at while they have no p-values; then the best alone."""
    differences = losses[1:] - losses[0]
    best = int(differences.mean(axis=1).argmin())
    looked = [judged(str(i), None, frozenset(range(8))) for i in range(len(differences))]
    return significant([looked, [judged(str(best), float(paired_p(differences[best])), frozenset(range(8)))]])


ADVERSARIES = [
    kept_best,
    until_one_wins,
    more_of_what_looks_good,
    hill_climbing,
    picked_seeds,
    kept_best_unseen,
]


@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_no_way_through_the_ledger_raises_the_error_rate(adversary: object) -> None:
    draw = np.random.default_rng(1)
    assert callable(adversary)
    assert share_wrong([adversary(draw.normal(0, 1, (7, 8))) for _ in range(300)]) > 0.001


@pytest.mark.slow
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_the_error_rate_of_every_way_through_the_ledger(adversary: object) -> None:
    """4,000 studies each, 20 identical arms where they are added one by one."""
    draw, arms = np.random.default_rng(2), 20 if adversary is until_one_wins else 6
    assert callable(adversary)
    assert share_wrong([adversary(draw.normal(0, 1, (arms + 1, 8))) for _ in range(4_000)]) > 0.01


def test_without_the_ledger_these_ways_lead_to_a_winner() -> None:
    """Without the correction, two ways lead to false winners: the best of six judged alone, and Holm over the arms so
    far, one arm at a time."""
    draw, studies = np.random.default_rng(3), 2_000
    p = paired_p(draw.normal(0, 1, (studies, 20, 3)) - draw.normal(0, 1, (studies, 1, 3)))
    assert 0.15 < np.mean(p[:, :6].min(axis=1) < 0.05) < 0.28
    assert np.mean((p < 0.05 / np.arange(1, 21)).any(axis=1)) > 0.10
