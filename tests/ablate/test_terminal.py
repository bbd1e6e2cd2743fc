"""What others wrote is shown on a terminal, and not obeyed."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.cli import main
from ablate.commands import print_json, print_table
from ablate.running.progress import open_counts
from evals.found import count, counting
from store.terminal import visible, visible_streams

OBEYED = "\x1b]0;title\x07\x1b[2J\r\x9b31m\u202e\u2066\x00\ud800"


@given(st.text())
def test_visible_text_is_printable_and_says_the_same(text: str) -> None:
    found = visible(text)
    assert all(each.isprintable() or each in "\n\t\xa0" or each.isspace() for each in found)
    assert "\x1b" not in found and "\r" not in found
    if text.isprintable():
        assert found == text


def test_a_document_stays_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    with visible_streams():
        print_json({"name": OBEYED, "θ": "𝒳 é"})
    assert json.loads(out.getvalue()) == {"name": OBEYED, "θ": "𝒳 é"}
    assert not set(OBEYED) & set(out.getvalue()) - set("0;title31m[2J]")


def test_tables_show_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    with visible_streams():
        print_table([("arm", "loss"), (OBEYED, "1")])
    assert "\\u001b]0;title\\u0007" in capsys.readouterr().out


def test_a_bar_shows_it_and_no_markup(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A task's name is its author's."""
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, to the bars
    with open_counts(print, on_terminal=True), counting(f"[/red][link=https://x]{OBEYED}"):
        count(1, 2)
    said = capsys.readouterr().err
    assert "[/red][link=https://x]\\u001b]0;title" in said and "\x1b]8;" not in said


@pytest.mark.parametrize("json_asked", [[], ["--json"]])
def test_arms_of_a_table_and_its_path_are_shown(
    json_asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "losses.csv"
    name = "two\x1b[31m\u202e\nablate: forged"
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = [["pre", i, 4.1 + i / 100] for i in range(4)] + [[name, i, 4.3 + i / 90] for i in range(4)]
        csv.writer(file).writerows([["arm", "seed", "loss"], *rows])
    assert main(["compare", str(path), "--baseline", "pre", *json_asked]) == 0
    assert main(["compare", f"{path}\x1b[31m"]) == 2
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err and "\u202e" not in out + err
    assert "\\u001b[31m" in out and "\\u001b[31m" in err and "\nablate: forged" not in out
