"""A published table beside ours: each row is a claim, its outcome that claim's, and the power what tests have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import reports
from ablate.wings.science.claim_spec import PublishedTable
from ablate.wings.science.replicating import HEADER, notes_below, replicated, row_as_text
from reports.judge.findings.study_summary import StudySummary
from reports.judge.noise.power import detectable, power_at
from store import StudyFolder
from store.documents import StudyClaim
from tests.reports.factory import Arm, StudyOf

BASE = [2.50, 2.51, 2.49, 2.52, 2.50]
TABLE = PublishedTable.model_validate(
    {
        "source": "Author 2020, arXiv:2001.00001, table 1",
        "measure": "loss",
        "nats": True,
        "tie": 0.01,
        "rows": [
            {"arm": "base", "figure": 1.70},
            {"arm": "gains", "figure": 1.60, "label": "Gains"},
            {"arm": "opposite", "figure": 1.60, "unchecked": True},
            {"arm": "noisy", "figure": 1.68},
            {"arm": "tied", "figure": 1.709},
        ],
    }
)


def summarised(folder: Path) -> StudySummary:
    """A study whose arms gain, lose, and differ by less than can be told, of which the paper says that three gain."""
    arms = [
        Arm("base", BASE),
        Arm("gains", [loss - 0.1 + 0.001 * n for n, loss in enumerate(BASE)]),
        Arm("opposite", [loss + 0.1 + 0.001 * n for n, loss in enumerate(BASE)]),
        Arm("noisy", [loss - 0.004 + 0.03 * (-1) ** n for n, loss in enumerate(BASE)]),
        Arm("tied", [loss + 0.001 * (-1) ** n for n, loss in enumerate(BASE)]),
    ]
    claims = [
        StudyClaim(**{**each.model_dump(exclude={"claim"}), "planned": "2026-01-01"}) for each in TABLE.claims("base")
    ]
    path = StudyOf(arms, claims=claims, margin=0.06).write(folder)
    document = StudyFolder(path).read()
    assert document is not None
    StudyFolder(path).write(document.model_copy(update={"published": TABLE.published("base")}))
    return reports.summarise(path)


def test_rows_agree_differ_or_cannot_be_told(tmp_path: Path) -> None:
    rows = {each.row.arm: each for each in replicated(summarised(tmp_path))}
    assert {name: each.judged.outcome for name, each in rows.items()} == {
        "gains": "agrees",
        "opposite": "differs",
        "noisy": "cannot tell",
        "tied": "agrees",
    }
    assert rows["tied"].power is None  # no difference was published
    gains, noisy = rows["gains"].power, rows["noisy"].power
    assert gains is not None and noisy is not None and noisy < 0.8 < gains
    assert rows["noisy"].judged.seen is not None and rows["noisy"].judged.seen > 0.02


def test_the_table_in_words(tmp_path: Path) -> None:
    rows = replicated(summarised(tmp_path))
    lines = [row_as_text(row) for row in rows]
    assert len(HEADER) == len(lines[0]) == 7 and [line[0] for line in lines] == ["Gains", "opposite*", "noisy", "tied"]
    assert lines[0][1:3] == ("1.6", "−0.1 against base: better") and "±" in lines[0][3]
    assert lines[3][2] == "+0.009 against base: no difference" and lines[3][5] == "–"
    notes = notes_below(TABLE.published("base"), rows)
    assert "agrees: 2, differs: 1, cannot tell: 1." in notes[1]
    assert notes[-1].startswith("* quoted from memory")


def test_a_study_without_a_table_has_no_rows(tmp_path: Path) -> None:
    assert replicated(reports.summarise(StudyOf([Arm("base", BASE)]).write(tmp_path))) == ()


@pytest.mark.parametrize(
    ("better", "figures", "expected"),
    [
        ("lower", (1.0, 0.9), "better"),
        ("lower", (1.0, 1.1), "worse"),
        ("higher", (47.2, 47.1), "same"),
        ("higher", (47.2, 46.6), "worse"),
        ("higher", (47.2, 47.4), "better"),
    ],
)
def test_what_figures_say(better: str, figures: tuple[float, float], expected: str) -> None:
    """A difference of exactly `tie`, as decimals have it, counts as none."""
    rows = [{"arm": arm, "figure": figure} for arm, figure in zip(("base", "arm"), figures, strict=True)]
    table = PublishedTable.model_validate(
        {"source": "x", "measure": "y", "better": better, "tie": 0.1 if better == "higher" else 0.0, "rows": rows}
    )
    (claim,) = table.claims("base")
    assert (claim.arm, claim.against, claim.expect, claim.by) == ("arm", "base", expected, None)


def test_sizes_are_claimed_only_in_nats() -> None:
    assert [claim.by for claim in TABLE.claims("base")] == [0.1, 0.1, 0.02, None]


@pytest.mark.parametrize("seeds", [3, 5, 12])
@pytest.mark.parametrize("room", [0.0, 0.5])
def test_power_is_that_of_the_test(seeds: int, room: float) -> None:
    """Against scipy's noncentral t, and t-tests that were drawn."""
    error, freedom, level = 1 / np.sqrt(seeds), seeds - 1, 0.05
    known = detectable(error, freedom, alpha=level) + room
    assert power_at(known, known, error, freedom, room) == pytest.approx(0.8)
    assert power_at(0.0, known, error, freedom, room) == pytest.approx(level / 2)
    draws = np.random.default_rng(0).normal(size=(40_000, seeds))
    critical = stats.t.isf(level / 2, freedom)
    for difference in (0.6, 1.2):
        found = power_at(-difference, known, error, freedom, room)
        centre = max(0.0, difference - room) / error
        assert found == pytest.approx(stats.nct.sf(critical, freedom, centre), abs=1e-6)
        if not room:
            shifted = draws + difference
            t = shifted.mean(axis=1) / (shifted.std(axis=1, ddof=1) / np.sqrt(seeds))
            assert found == pytest.approx((t > critical).mean(), abs=0.01)
