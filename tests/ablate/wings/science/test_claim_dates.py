"""Claims in the store: each keeps the date on which it was first planned, and says if results were known by then."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from ablate.cli import main
from ablate.wings.science.stated import with_dates
from store import Store
from store.documents import StudyClaim, StudyDocument
from tests.reports.factory import Arm, StudyOf

WORSE: dict[str, object] = {"arm": "post", "expect": "worse", "source": "arXiv:2002.04745"}
STALLS: dict[str, object] = {"arm": "post", "expect": "stalls"}


def run(study: Path, store: Path, *claims: dict[str, object]) -> tuple[StudyClaim, ...]:
    """The claims in study.json after the study was run with these."""
    options = ("--store", str(store), "--engine", "inprocess", "--set", f"claims={json.dumps(claims)}")
    assert main(["run", str(study), *options]) == 0
    found = Store(store).studies()[0].read()
    assert found is not None
    return found.claims


def test_a_claim_stated_first_is_kept_and_one_that_came_after_results_says_so(study: Path, tmp_path: Path) -> None:
    store = tmp_path / "runs"
    (first,) = run(study, store, WORSE)
    assert (first.arm, first.against, first.expect, first.edited) == ("post", "pre", "worse", False)
    folder = Store(store).studies()[0]
    document = folder.read()
    assert document is not None and first.planned == document.created[:10]
    earlier = first.model_copy(update={"planned": "2020-01-01"})
    folder.write(document.model_copy(update={"claims": (earlier,)}))

    kept, later = run(study, store, WORSE, STALLS)
    assert kept == earlier
    assert (later.expect, later.against, later.edited) == ("stalls", None, True)

    (changed,) = run(study, store, {**WORSE, "by": 0.1})
    assert changed.edited and changed.planned != "2020-01-01"


def test_digests_and_documents_of_studies_without_claims_stay(study: Path, copy: Path) -> None:
    before = Store(copy).studies()[0].read()
    assert before is not None and "claims" not in before.model_dump_json()
    run(study, copy, WORSE)
    after = Store(copy).studies()[0].read()
    assert after is not None and after.arms == before.arms


def document_of(claims: Sequence[StudyClaim], name: str = "x") -> StudyDocument:
    arms = [Arm(arm, [2.0, 2.1], steps=4) for arm in ("base", "a", "b")]
    return StudyOf(arms, name=name, claims=claims).document()


CASES = {
    "nothing is known": ((), None, False),
    "the study was planned, and nothing is known": ((), (), False),
    "a run of the study has ended": (("base",), (), True),
    "another study had its runs": (("base", "a"), None, True),
    "another study had the baseline's runs": (("base",), None, False),
}


@pytest.mark.parametrize("name", CASES)
def test_a_claim_is_edited_where_results_could_have_suggested_it(name: str) -> None:
    ended, earlier, edited = CASES[name]
    claim = StudyClaim(arm="a", against="base", expect="better", planned="2026-01-02")
    document = document_of([claim])
    digests = {run.digest for arm in document.arms if arm.name in ended for run in arm.runs}
    before = None if earlier is None else document_of(earlier)
    (found,) = with_dates(document, before, digests.__contains__).claims
    assert found.edited == edited
    assert found.planned == "2026-01-02"


def test_an_edited_claim_stays_edited_and_needs_no_second_look() -> None:
    claim = StudyClaim(order=("a", "base"), planned="2026-01-02", edited=True)
    again = claim.model_copy(update={"planned": "2026-03-04", "edited": False})
    assert with_dates(document_of([again]), document_of([claim]), lambda _: False).claims == (claim,)


def test_other_words_for_who_says_so_are_no_other_claim() -> None:
    claim = StudyClaim(arm="a", against="base", expect="better", source="x", planned="2026-01-02")
    words = {"claim": "norm-center", "source": "y", "where": "z"}
    again = claim.model_copy(update={**words, "planned": "2026-03-04"})
    (found,) = with_dates(document_of([again]), document_of([claim]), lambda _: True).claims
    assert found == claim.model_copy(update=words)


def test_a_plan_lists_claims(study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["plan", str(study), "--store", str(tmp_path), "--set", f"claims={json.dumps([WORSE])}"]
    assert main(options) == 0
    assert "claim: post: higher loss than pre (arXiv:2002.04745)" in capsys.readouterr().out
    assert main([*options, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["claims"]
    assert found == {**WORSE, "against": "pre", "measure": "loss"}
