"""Papers that ship, and `ablate replicate` on one made up, whose study trains in seconds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import ablate
from ablate.cli import main
from ablate.study.reading import load_study
from ablate.wings.science.claim_spec import claims_of, published_table
from ablate.wings.science.handbook import handbook
from ablate.wings.science.sources import PAPERS, find_paper, papers
from store.documents.study import SCALES

NAMES = sorted(path.stem for path in PAPERS.glob("*.yaml"))
ADDED = """
published:
  source: Author 2020, arXiv:2001.00001, table 1
  measure: loss
  nats: true
  rows:
    - {arm: pre, figure: 2.0}
    - {arm: post, figure: 2.5}
"""


@pytest.fixture
def paper(study: Path) -> Path:
    path = study.with_name("paper.yaml")
    path.write_text(study.read_text() + ADDED)
    return path


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", SCALES)
def test_shipped_papers_can_be_read_at_every_scale(name: str, scale: str) -> None:
    study = load_study(PAPERS / f"{name}.yaml", scale)
    assert published_table(study.sections) is not None and len(claims_of(study.sections, study.baseline)) >= 1
    if study.sections.published.nats:
        assert study.sections.margin == study.sections.published.tie  # a tie is one by the same measure


@pytest.mark.parametrize("name", NAMES)
def test_figures_that_are_not_said_to_be_from_memory_stand_in_the_handbook(name: str) -> None:
    table = load_study(PAPERS / f"{name}.yaml", "smoke").sections.published
    assert table is not None
    (number,) = re.findall(r"arXiv:\S+?(?=,|$)", table.source)
    known = " ".join(entry.figure or "" for entry in handbook().values() if number in (entry.source or ""))
    checked = [f"{row.figure:g}" for row in table.rows if row.figure is not None and not row.unchecked]
    assert [figure for figure in checked if figure not in known] == []


def test_papers_by_name_number_and_file(tmp_path: Path) -> None:
    assert list(papers()) == NAMES
    for given in ("glu_variants", "2002.05202", "arXiv:2002.05202v1", PAPERS / "glu_variants.yaml"):
        assert find_paper(given) == PAPERS / "glu_variants.yaml"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("glu_varients", "did you mean 'glu_variants'"),
        ("1234.56789", "no shipped paper has this name or number; shipped: glu_variants"),
        ("norm_placement.yaml", "norm_placement.yaml"),
    ],
)
def test_papers_that_are_not_there(given: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replicate", given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


def test_a_study_without_a_table(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replicate", str(study)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "needs a section `published`" in line


def test_rows_name_arms(paper: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paper.write_text(paper.read_text().replace("{arm: post, figure", "{arm: pots, figure"))
    assert main(["plan", str(paper)]) == 2
    assert "published.rows.1.arm: unknown arm 'pots' (did you mean 'post'?)" in capsys.readouterr().err


def test_a_table_is_replicated(paper: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "runs")
    assert main(["replicate", str(paper), "--plan", "--store", store]) == 0
    said = capsys.readouterr().out
    assert "table 1: 1 rows to compare, of which 1 differ, by 0.5 nats" in said
    assert "1 of these 1 differences will probably be detected (80 % power)" in said
    assert not (tmp_path / "runs").exists()

    options = [str(paper), "--store", store, "--engine", "inprocess"]
    assert main(["replicate", *options, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["arm"], row["against"], row["difference"], row["expect"]) == ("post", "pre", 0.5, "worse")
    assert row["outcome"] in ("agrees", "differs", "cannot tell")
    contrast = ablate.open(store).result("paper").contrasts.row(0, named=True)
    assert (row["ours"], row["low"], row["high"]) == (contrast["difference"], contrast["low"], contrast["high"])
    assert row["outcome"] == {"worse": "agrees", "better": "differs"}.get(contrast["verdict"], row["outcome"])

    assert main(["replicate", *options]) == 0
    assert "Rows by outcome: " in capsys.readouterr().out


def test_papers_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replicate"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in NAMES)
