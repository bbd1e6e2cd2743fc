"""References of real runs: computed with their text, packed and merged with them, and foretold from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ablate
import reports
from ablate.api.result import StudyResult
from ablate.cli import main
from ablate.data import Corpus, open_corpus
from ablate.data.references import references
from ablate.planning.prospects import LikelyStanding
from ablate.wings.archive.file_checks import Check
from store import Store
from tests.ablate.toy import toy_study

ARMS = "{post: {block.norm_placement: post}, bpe: {data.tokenizer: {kind: bpe, vocab_size: 300}}}"
SETTINGS: dict[str, Any] = {"engine": "inprocess", "progress": False, "device": "cpu"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    """Two tokenizers, so that losses are per byte."""
    folder = tmp_path_factory.mktemp("references")
    path = toy_study(folder, ARMS)
    lines = [line for line in path.read_text().splitlines() if not line.startswith("budget")]
    text = "\n".join([*lines, "budget: {flops: 1e8}\n"])
    path.write_text(text.replace("validation_tokens: 1024", "validation_tokens: 16384"))
    return ablate.run(path, store=folder / "runs", sets=["seeds=[0, 1]"], **SETTINGS)


def test_a_run_stores_references_of_every_text(trained: StudyResult) -> None:
    """In nats per byte if losses are, of the tokens that each arm's runs read."""
    assert trained.summary is not None
    known = trained.summary.references
    base = trained.summary.baseline
    assert set(known) == {base, "post", "bpe"}
    for arm in trained.summary.study.arms:
        corpus = open_corpus(trained.store.data(arm.data).path)
        assert isinstance(corpus, Corpus)
        assert known[arm.name].read == references(corpus, 32, arm.tokens).per_byte()
        assert known[arm.name].whole == references(corpus, 32).per_byte()
        assert known[arm.name].read.tokens < corpus.train_tokens
    document: Any = trained.document()
    per_byte = known[base].read
    assert document["references"]["bigram"] == per_byte.bigram
    standings = {arm["name"]: arm["standing"] for arm in document["arms"]}
    assert standings[base] == per_byte.standing(document["arms"][0]["loss"])
    assert all(standings.values())
    # of the same held-out text, gzip needs the same bits per byte whatever the tokenizer
    assert known["bpe"].read.gzip == pytest.approx(per_byte.gzip)


def test_references_travel_with_packed_runs(trained: StudyResult, tmp_path: Path) -> None:
    archive, there = tmp_path / "toy.zip", tmp_path / "other"
    store = str(trained.store.root)
    assert main(["pack", "toy", "--store", store, "--out", str(archive)]) == 0
    assert main(["merge", str(archive), "--store", str(there)]) == 0
    merged = reports.summarise(Store(there).study("toy", trained.scale).path)
    assert trained.summary is not None
    assert merged.references == trained.summary.references


def test_damaged_references_are_found(trained: StudyResult) -> None:
    assert trained.summary is not None
    folder = trained.store.data(trained.summary.study.arms[0].data)
    path = folder.references_path(*folder.known_references()[0])
    whole = path.read_bytes()
    try:
        path.write_bytes(whole.replace(b'"bigram": ', b'"bigram": 1'))
        (line,) = Check(trained.store).damages()
        assert str(path) in line
    finally:
        path.write_bytes(whole)
    assert list(Check(trained.store).damages()) == []


def test_a_synthetic_task_has_no_references(tmp_path: Path) -> None:
    path = toy_study(tmp_path, "{post: {block.norm_placement: post}}")
    lines = [line for line in path.read_text().splitlines() if not line.startswith("data")]
    path.write_text("\n".join([*lines, "data: {source: parity}\n"]))
    found = ablate.run(path, store=tmp_path / "runs", sets=["seeds=[0, 1]"], **SETTINGS)
    assert found.document()["references"] is None
    assert not list((tmp_path / "runs").rglob("references-*.json"))
    assert ablate.plan(path, store=tmp_path / "runs", device="cpu", progress=False).prospects.standing is None


def test_a_plan_foretells_from_runs_of_like_size(tmp_path: Path) -> None:
    """Within a factor of two in size and in length, on the same text. 30 steps do not learn which letters follow."""
    path, store = toy_study(tmp_path, "{post: {block.norm_placement: post}}"), tmp_path / "runs"
    given: dict[str, Any] = {"store": store, "device": "cpu", "progress": False}
    assert ablate.plan(path, **given).prospects.standing is None
    result = ablate.run(path, store=store, sets=["seeds=[0, 1]"], **SETTINGS)
    assert result.summary is not None
    base, known = result.summary.arms[0], result.summary.references[result.summary.baseline].read
    plan = ablate.plan(path, sets=["budget.tokens=6e3"], **given)
    expected = LikelyStanding(
        source=f"{result.summary.baseline} of toy at cpu",
        parameters=result.summary.study.arms[0].parameters_non_embedding,
        tokens=3840,
        loss=base.loss.mean,
        bigram=known.bigram,
        standing="worse than bigrams",
    )
    found = plan.prospects.standing
    assert found is not None
    assert found.document() == pytest.approx(expected.document())
    assert [line for line in plan.notes() if line.startswith("will probably end worse than a bigram table")] == [
        found.line
    ]
    assert plan.document()["likely_standing"] == found.document()
    for sets in (["budget.tokens=9e3"], ["base.d_model=64"], ["data.tokenizer={kind: bpe, vocab_size: 300}"]):
        assert ablate.plan(path, sets=sets, **given).prospects.standing is None, sets
    damaged = store / "studies" / "damaged-cpu" / "study.json"
    damaged.parent.mkdir()
    damaged.write_text("{}")
    assert ablate.plan(path, sets=["budget.tokens=6e3"], **given).prospects.standing == found
