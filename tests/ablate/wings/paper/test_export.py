"""Figures and tables for a paper."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from ablate.cli import main
from ablate.wings.paper import exporting as export
from reports.page.wording.table import Table, latex, markdown
from tests.reports.browsing import no_chromium
from tests.reports.factory import HOSTILE, Arm, StudyOf, typical

ODD = Table(("name", "p"), ((f"a_b & {HOSTILE} | 50 % \\x", "−0.5 ± 1 × 10⁻³"),))


def test_latex_escapes_what_is_special() -> None:
    text = latex(ODD)
    assert r"\begin{tabular}{lr}" in text
    assert r"a\_b \& \textless{}script\textgreater{}alert(1)" in text
    assert r"50 \% \textbackslash{}x & $-$0.5 $\pm$ 1 $\times$ 10$^{-}$$^{3}$ \\" in text
    assert not re.search(r"(?<!\\)[%&#_](?! )", text.replace(" & ", " "))


def test_markdown_keeps_its_columns() -> None:
    lines = markdown(ODD).splitlines()
    assert lines[:2] == ["| name | p |", "| :-- | --: |"]
    assert len(re.findall(r"(?<!\\)\|", lines[2])) == 3
    assert "<" not in lines[2]


@no_chromium
def test_every_figure_becomes_a_drawing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = typical(20).write(tmp_path / "store")
    assert main(["report", str(folder), "--export", str(tmp_path / "paper"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["left_out"] == []
    drawings = sorted(path for path in (tmp_path / "paper").glob("*.svg"))
    assert len(drawings) == 8
    for drawing in drawings:
        root = ET.parse(drawing).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) > 5
        assert (tmp_path / "paper" / f"figure-{drawing.stem}.tex").exists()
        said = " ".join(root.itertext())
        assert "norm_placement, scale cpu" in said  # where the picture is from, and what it speaks of
        assert "3 seeds" in said


def test_without_a_browser_there_are_tables_and_a_word_about_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(export, "BROWSERS", ("no-such-browser",))
    folder = StudyOf([Arm("a", [2.0, 2.1], steps=4), Arm("b", [2.2, 2.4], steps=4)], measured=False).write(tmp_path)
    assert main(["report", str(folder), "--export", str(tmp_path / "paper")]) == 0
    said = capsys.readouterr()
    assert str(tmp_path / "paper" / "results.md") in said.out
    assert "no Chromium found" in said.err
    assert not list((tmp_path / "paper").glob("*.svg"))


def test_a_store_has_no_figures_to_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    StudyOf([Arm("a", [2.0], steps=4)], measured=False).write(tmp_path)
    assert main(["report", str(tmp_path), "--export", "paper"]) == 2
    assert "export a study instead" in capsys.readouterr().err
    assert main(["report", str(tmp_path)]) == 0
    assert (tmp_path / "index.html").exists()
