"""The handbook of claims: every entry is tested or says why not, what it names exists, and studies can refer to it."""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import ablate
from ablate.cli import main
from ablate.study.complaints import StudyError
from ablate.study.reading import load_study
from ablate.study.written import shipped
from ablate.wings.science.atlas import known_sources
from ablate.wings.science.handbook import FOLDER, Answer, HandbookClaim, handbook
from ablate.wings.science.stated import study_claims
from store.documents import StudyClaim
from tests.many import over
from tests.test_imports import ROOT

ENTRIES = list(handbook().values())
PAPER = re.compile(r"arXiv:(\d\d)(\d\d)\.(\d{4,5})\b")


def test_every_entry_is_tested_or_says_why_not() -> None:
    for entry in ENTRIES:
        named = [bool(entry.studies or entry.exact), bool(entry.planned), bool(entry.why_not)]
        assert sum(named) == 1, entry.id
    assert len(ENTRIES) > 200


@over([entry for entry in ENTRIES if entry.studies])
def test_its_studies_ship(entry: HandbookClaim) -> None:
    assert set(entry.studies) <= set(shipped())


@functools.cache
def names_in(path: Path) -> frozenset[str]:
    return frozenset(re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))


@over(sorted({check for entry in ENTRIES for check in entry.exact}))
def test_its_exact_check_is_there(check: str, capsys: pytest.CaptureFixture[str]) -> None:
    if check.startswith("ablate "):
        assert main(shlex.split(check)[1:]) == 0
        assert capsys.readouterr().out
    else:
        path, _, name = check.partition("::")
        assert name in names_in(ROOT / path)


def test_papers_are_named_by_identifiers_that_can_exist() -> None:
    for entry in ENTRIES:
        text = " ".join(filter(None, (entry.source, entry.evidence, entry.where)))
        assert not re.search(r"(?<!arXiv:)\b\d{4}\.\d{4,5}\b", text), entry.id
        for year, month, number in PAPER.findall(text):
            assert 1 <= int(month) <= 12 and len(number) == (5 if int(year) >= 15 else 4), entry.id


def stated() -> Iterator[tuple[str, StudyClaim]]:
    for study in known_sources().studies:
        yield from ((study.name, claim) for claim in study.claims)


def test_claims_of_shipped_studies_are_in_the_handbook_and_the_handbook_knows_their_studies() -> None:
    for study, claim in stated():
        assert claim.claim is not None, (study, claim)
        assert study in handbook()[claim.claim].studies, (study, claim.claim)
        assert claim.source, (study, claim)


def test_a_study_takes_source_and_conditions_from_the_handbook_but_its_own_words_win(study: Path) -> None:
    claims = [
        {"claim": "place-stable", "arm": "post", "expect": "worse"},
        {"claim": "place-stable", "arm": "post", "expect": "stalls", "source": "me", "where": "here"},
        {"arm": "post", "expect": "same"},
    ]
    (taken, own, free) = study_claims(load_study(study, sets={"claims": claims}), "2026-01-01")
    entry = handbook()["place-stable"]
    assert (taken.claim, taken.source, taken.where) == (entry.id, entry.source, entry.where)
    assert (own.claim, own.source, own.where) == (entry.id, "me", "here")
    assert (free.claim, free.source, free.where) == (None, None, None)


def test_an_unknown_entry_brings_the_nearest_one(study: Path) -> None:
    wrong = [{"claim": "place-stabel", "arm": "post", "expect": "worse"}]
    with pytest.raises(StudyError, match=r"unknown handbook claim 'place-stabel' \(did you mean 'place-stable'\?\)"):
        load_study(study, sets={"claims": wrong})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "needs exactly one of tests"),
        ({"planned": "x", "why_not": "y"}, "needs exactly one of tests"),
        ({"studies": ["x"], "why_not": "y"}, "needs exactly one of tests"),
        ({"planned": "x", "open": "y"}, "`open` needs `studies` or `exact`"),
        ({"exact": ["x"], "unchecked": True}, "`unchecked` needs `figure`"),
        ({"exact": ["x"], "standing": "disputed"}, "`standing: disputed` needs `evidence`"),
        ({"exact": ["x"], "grade": "likely"}, "grade"),
        ({"exact": ["x"], "claim": "no sentence"}, "claim"),
    ],
)
def test_an_incomplete_entry_is_refused(fields: dict[str, object], reason: str) -> None:
    whole: dict[str, object] = {"id": "a-b", "topic": "t", "claim": "A is b.", "grade": "must tie"}
    with pytest.raises(ValueError, match=reason):
        HandbookClaim.model_validate(whole | fields)


def test_the_guide_has_the_counts() -> None:
    guide = (ROOT / "docs" / "atlas.md").read_text(encoding="utf-8")
    for answer in get_args(Answer):
        count = sum(entry.answer == answer for entry in ENTRIES)
        assert re.search(rf"^\| {answer} \|.*\| {count} \|$", guide, re.MULTILINE), (answer, count)
    assert f"{len(ENTRIES)} claims" in guide and f"{len(list(FOLDER.glob('*.yaml')))} topics" in guide


def test_a_damaged_file_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = "\n  claim: A is b.\n  grade: must tie\n  why_not: c\n"
    monkeypatch.setattr("ablate.wings.science.handbook.FOLDER", tmp_path)
    (tmp_path / "one.yaml").write_text(f"a-b:{whole}a-c:{whole}  sauce: d\n", encoding="utf-8")
    with pytest.raises(StudyError, match=r"one\.yaml:9:10: a-c\.sauce: unknown key \(did you mean 'source'\?\)"):
        handbook.__wrapped__()
    (tmp_path / "one.yaml").write_text(f"a-b:{whole}", encoding="utf-8")
    (tmp_path / "two.yaml").write_text(f"a-b:{whole}", encoding="utf-8")
    with pytest.raises(StudyError, match=r"two\.yaml:1:1: a-b: given twice .also in one."):
        handbook.__wrapped__()


def test_words_are_one_phrase_or_else_must_all_be_there() -> None:
    phrase = ablate.claims("sliding window")
    assert phrase == ablate.claims("sliding", "window") and any("window" in each.claim for each in phrase)
    assert {*ablate.claims("rope", "disputed")} == {*ablate.claims("rope")} & {*ablate.claims("disputed")}


def test_the_command_finds_claims_by_words_and_by_id(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "ROPE", "disputed"]) == 0
    shown = capsys.readouterr().out
    assert "pos-rope-extra: RoPE extrapolates well" in shown and "ablate run position_encodings" in shown
    assert "pos-rope-impl" not in shown
    assert all(len(line) <= 80 for line in shown.splitlines() if "::" not in line)
    for answer in get_args(Answer):
        count = sum(entry.answer.startswith(answer) for entry in ENTRIES)
        assert main(["claims", f"tested by {answer}"]) == (0 if count else 2)
        said = capsys.readouterr()
        assert f"\n{count} of {len(ENTRIES)} claims" in said.out or f"no claim contains tested by {answer}" in said.err
    assert main(["claims", "pos-rope"]) == 0
    assert f"1 of {len(ENTRIES)} claims" in capsys.readouterr().out
    assert main(["claims"]) == 0
    listed = capsys.readouterr().out
    assert all(entry.topic in listed for entry in ENTRIES) and max(map(len, listed.splitlines())) <= 80
    assert main(["claims", "norm-centre"]) == 2
    assert "did you mean 'norm-center'?" in capsys.readouterr().err


def test_the_command_has_every_claim_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["id"] for each in found] == [entry.id for entry in ENTRIES]
    (bytes_of_cache,) = (each for each in found if each["id"] == "kv-bytes")
    run, check = bytes_of_cache["commands"]
    assert run == "ablate run gqa_groups" and check.startswith("pytest tests/ablate/test_handbook_figures.py::")
