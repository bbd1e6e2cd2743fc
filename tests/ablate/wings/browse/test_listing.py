"""`ablate list`: what a store holds, and what ships."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ablate
from ablate.cli import main
from ablate.study.written import RESULTS, shipped


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["list", *arguments]) == 0
    return capsys.readouterr().out


def test_a_store_that_is_not_there_has_no_studies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(listed(capsys, "--store", str(tmp_path / "none"), "--json"))
    assert document["stored"] == []
    rows = document["shipped"]
    assert sorted(row["name"] for row in rows) == shipped()
    groups = [0 if row["recorded"] else 3 if row["search"] else 2 if row["needs"] else 1 for row in rows]
    assert groups == sorted(groups), "answered, not answered yet, for a GPU, for a search"
    assert not (tmp_path / "none").exists()


def test_studies_are_listed_by_whether_they_are_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = listed(capsys, "--shipped", "--store", str(tmp_path))
    unanswered = (
        "needs gpu-hour",
        "sparse_att",
        "for `ablate search`",
        "search_small_lm",
    )
    places = [out.index(text) for text in ("norm_placement", *unanswered)]
    assert places == sorted(places) and "not answered yet" not in out


def test_words_choose_by_name_and_question(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = listed(capsys, "key-value", "heads", "--store", str(tmp_path))
    assert "gqa_groups" in out and "moe" not in out


def test_words_that_no_study_has_are_said_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = listed(capsys, "no", "such thing", "--store", str(tmp_path))
    assert out == (
        "No study matches 'no' and 'such thing' in its name or question: `ablate list --shipped` lists all that ship.\n"
    )


def test_a_shipped_study_has_what_was_recorded_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The smaller scale first."""
    names = ("norm_placement@cpu", "norm_placement@cpu-long")
    documents = [json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")) for name in names]
    out = " ".join(listed(capsys, "norm_placement", "--store", str(tmp_path)).split())
    for document in documents:
        assert document["answer"] in out and f"recorded {document['recorded']} at {document['scale']}" in out
    (row,) = json.loads(listed(capsys, "norm_placement", "--store", str(tmp_path), "--json"))["shipped"]
    assert [each["answer"] for each in row["recorded"]] == [document["answer"] for document in documents]
    (without,) = json.loads(listed(capsys, "search_small_lm", "--store", str(tmp_path), "--json"))["shipped"]
    assert without["recorded"] == []


def test_a_stored_study_has_its_answer(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = json.loads(listed(capsys, "--store", str(trained), "--json"))["stored"]
    result = ablate.open(trained).result(row["name"], row["scale"])
    assert row["answer"] == result.headline
    assert (row["ended"], row["runs"]) == (result.runs.height, result.runs.height)
    assert row["name"] in listed(capsys, "--store", str(trained))


def test_a_plan_says_what_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["plan", "norm_placement", "--scale", "smoke", "--store", str(tmp_path)]
    document = json.loads((RESULTS / "norm_placement@cpu.json").read_text(encoding="utf-8"))
    assert main(given) == 0
    assert f"known: {document['answer']}" in capsys.readouterr().out
    assert main([*given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recorded"][0]["answer"] == document["answer"]
