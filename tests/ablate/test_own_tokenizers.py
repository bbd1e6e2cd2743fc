"""Arms that read the same text through tokenizers of their own."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import reports
from ablate.cli import main
from ablate.planning.make_plan import make_plan
from ablate.study.complaints import StudyError
from ablate.study.reading import load_study
from store import Store
from tests.ablate.toy import run_toy, toy_study

ARMS = "{bpe: {data.tokenizer: {kind: bpe, vocab_size: 300}}}"


def study_of(folder: Path, budget: str = "flops: 1e8", more: str = "") -> Path:
    path = toy_study(folder, ARMS)
    lines = [line for line in path.read_text().splitlines() if not line.startswith("budget")]
    path.write_text("\n".join([*lines, f"budget: {{{budget}}}", more]) + "\n")
    return path


def test_each_arm_has_the_vocabulary_and_the_corpus_of_its_tokenizer(tmp_path: Path) -> None:
    base, bpe = make_plan(load_study(study_of(tmp_path), "cpu")).arms
    assert (base.spec.vocab_size, bpe.spec.vocab_size) == (257, 300)
    assert base.runs[0].identity.data != bpe.runs[0].identity.data
    assert base.identity.content == bpe.identity.content


def test_losses_compare_per_byte(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    summary = run_toy(study_of(tmp_path), store, [0, 1])
    base, bpe = summary.arms
    assert summary.unit == "nats/byte"
    stored = {}
    for arm in (base, bpe):
        runs = summary.runs.filter(arm=arm.name).sort("seed")
        stored[arm.name] = [store.read_result(digest) for digest in runs["digest"]]
        nats = [result.bits_per_byte * math.log(2) for result in stored[arm.name]]
        assert arm.loss.values == pytest.approx(nats)
    per_token = [result.loss for result in stored["bpe"]]
    assert bpe.loss.values != pytest.approx(per_token, rel=0.01)
    expected = [
        (one.bits_per_byte - other.bits_per_byte) * math.log(2)
        for one, other in zip(stored["bpe"], stored[base.name], strict=True)
    ]
    assert bpe.comparison.difference.values == pytest.approx(expected)
    factor = np.mean([result.bits_per_byte * math.log(2) / result.loss for result in stored["bpe"]])
    judged = np.mean([result.judging_loss for result in stored["bpe"]])
    assert summary.sections["losses"].curves[-1].points[-1].mean == pytest.approx(factor * judged)
    page = reports.render(store.study(summary.study.name, summary.study.scale).path, summary).read_text()
    assert "nats/byte" in page
    assert "nats/token" not in page


def test_tokens_and_seconds_are_no_common_budget(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="arms with different tokenizers are compared at equal flops, not tokens"):
        make_plan(load_study(study_of(tmp_path, "tokens: 4096"), "cpu"))


def test_all_that_is_held_out_must_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = study_of(tmp_path)
    options = ["--store", str(tmp_path / "runs"), "--set", "data.validation_tokens=256", "--scale", "cpu"]
    assert main(["run", str(path), *options]) == 2
    assert "are compared on all held-out text" in capsys.readouterr().err


def test_recall_has_no_targets_in_common(tmp_path: Path) -> None:
    path = study_of(tmp_path)
    path.write_text(path.read_text().replace("evals:", "evals: {tasks: [], recall: true}  #"))
    with pytest.raises(
        StudyError, match=r"evals\.recall: needs one tokenizer for all arms, but some arms have their own"
    ):
        make_plan(load_study(path, "cpu"))
