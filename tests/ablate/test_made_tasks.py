"""Studies on synthetic tasks: from the file to the report, and what they refuse."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import reports
import zoo
from ablate.cli import main
from ablate.data import open_corpus
from ablate.data.sources._synthetic import SyntheticCorpus
from ablate.data.sources.grammar import GrammarSource
from ablate.planning.make_plan import make_plan
from ablate.study.reading import load_study
from ablate.study.study import StudyError
from reports.judge.reading.collected import CurvePoint
from reports.page.evaluations.diagnostics import AccuracyCurve, Rung, figure_of
from reports.page.figures.drawing import ArmStyle
from reports.page.sections import draw, summarise_study
from store import Store
from tests.data.grammars import entropy
from zoo.loss import IGNORED

STUDY = """
question: Does it recall?
base: {{preset: small, d_model: 16, n_layers: 1, block.mixer.heads: 2}}
arms:
  wide: {{block.ffn.d_ff: 8x}}
seeds: 2
data: {data}
train: {{context: 32, batch: 4, lr: 1e-2, validate_every: 0.5}}
budget: {{tokens: {tokens}}}
measure: null
tune: off
{more}
"""
DATA = "{source: mqar, pairs: [2, 4, 8], tokens_per_pair: 4, keys: 8, values: 8, validation_examples: 30}"
SEARCH = "search: {{space: {{train.lr: {{log: [1e-3, 1e-2]}}}}, objectives: [{}], trials: 2}}"


def study_file(folder: Path, data: str = DATA, more: str = "", tokens: int = 1280) -> Path:
    path = folder / "recall.yaml"
    path.write_text(STUDY.format(data=data, more=more, tokens=tokens))
    return path


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A study's folder and what `ablate run --json` printed, with difficulties of its own asked at the end."""
    folder = tmp_path_factory.mktemp("made")
    path = study_file(folder, more="evals: {diagnostics: {examples: 20, at: {pairs: [2, 4]}}}")
    out = folder / "out.json"
    with pytest.MonkeyPatch.context() as patch, out.open("w") as stream:
        patch.setattr("sys.stdout", stream)
        arguments = ["run", str(path), "--scale", "cpu", "--store", str(folder / "runs"), "--engine", "inprocess"]
        assert main([*arguments, "--json"]) == 0
    return folder / "runs" / "studies" / "recall-cpu", json.loads(out.read_text())


def test_a_run_has_an_accuracy_and_no_bytes(ran: tuple[Path, dict[str, Any]]) -> None:
    folder, document = ran
    for run in document["runs"]:
        result = Store.of_study(folder).read_result(run["digest"])
        assert result is not None
        assert (result.bits_per_byte, result.floor) == (None, None)
        assert result.accuracy is not None and 0 <= result.accuracy <= 1
    arm = document["arms"][0]
    assert arm["bits_per_byte"] is None
    assert 0 <= arm["accuracy"] <= 1
    assert set(arm["evals"]["mqar"]) == {"accuracy", "accuracy (pairs 2)", "accuracy (pairs 4)"}
    assert document["arms"][1]["eval_differences"]["mqar"]["accuracy"]["items"] == 40


def test_the_stored_accuracy_is_that_of_asking_one_example_at_a_time(ran: tuple[Path, dict[str, Any]]) -> None:
    folder, document = ran
    store = Store.of_study(folder)
    digest = document["runs"][0]["digest"]
    identity, study = store.read_run(digest), store.study("recall", "cpu").read()
    assert identity is not None
    assert study is not None
    model = zoo.open(store.model_dir(digest)).eval()
    corpus = open_corpus(store.data(identity.data.digest).path)
    assert isinstance(corpus, SyntheticCorpus)
    evals = store.read_evals(digest, str(study.evals))
    assert evals is not None
    rows = evals.sections["diagnostics"].rows
    for asked_of, level in zip(corpus.questions({"pairs": [2, 4]}, 20, 0), rows, strict=True):
        shares, losses = [], []
        for tokens, targets in zip(asked_of.tokens, asked_of.targets, strict=True):
            with torch.no_grad():
                log_p = model(torch.from_numpy(tokens[None]))[0].log_softmax(-1)
            asked = [place for place, target in enumerate(targets) if target != IGNORED]
            shares.append(np.mean([int(log_p[place].argmax()) == targets[place] for place in asked]))
            losses.append(np.mean([-float(log_p[place, targets[place]]) for place in asked]))
        assert level["level"] == dict(asked_of.level)
        assert level["accuracy"] == pytest.approx(np.mean(shares))
        assert level["stderr"] == pytest.approx(np.std(shares, ddof=1) / math.sqrt(20))
        assert level["nats"] == pytest.approx(np.mean(losses), rel=1e-5)
        assert level["chance"] == 1 / asked_of.level["pairs"]


def test_the_report_draws_accuracy_by_difficulty(ran: tuple[Path, dict[str, Any]]) -> None:
    summary = summarise_study(ran[0])
    figure = next(figure for figure in draw(summary) if figure.key == "accuracy-pairs")
    assert [trace.name for trace in figure.drawing.data if trace.mode == "lines+markers"] == ["base", "wide"]
    chance = next(trace for trace in figure.drawing.data if trace.name == "chance")
    assert (list(chance.x), list(chance.y)) == ([2, 4], [0.5, 0.25])
    assert len(figure.table.rows) == 4
    store = Store.of_study(ran[0])
    for over_training in summary.sections["training_accuracy"].curves:
        digests = summary.runs.filter(arm=over_training.arm)["digest"]
        last = [store.read_metrics(digest)["accuracy"].drop_nulls()[-1] for digest in digests]
        assert [point.x for point in over_training.points] == [0, 5, 10]
        assert over_training.points[-1].mean == pytest.approx(np.mean(last))
    for curve in summary.sections["diagnostics"].curves:
        arm = next(arm for arm in summary.arms if arm.name == curve.arm)
        for rung in curve.rungs:
            score = next(s for s in arm.scores if s.metric == f"accuracy (pairs {rung.accuracy.x})")
            assert rung.accuracy.mean == pytest.approx(score.value)
            assert rung.stderr == pytest.approx(score.stderr)
    header = reports.table(summary)[0]
    assert "accuracy" in header
    assert "bits/byte" not in header


@pytest.mark.parametrize(
    ("chances", "mode", "words"),
    [((0.5, 0.25), "lines", "Dotted: chance."), ((0.5,), "markers", "Grey: chance."), ((None, None), "markers", "")],
)
def test_chance_is_seen_where_there_is_one(chances: tuple[float | None, ...], mode: str, words: str) -> None:
    """At a single difficulty too; a language has none."""
    rungs = tuple(Rung(CurvePoint(2.0**i, 0.6, 0.5, 0.7, 2), 0.1, chance) for i, chance in enumerate(chances))
    figure = figure_of(
        "pairs", [AccuracyCurve("a", "mqar", "pairs", rungs, ())], {"a": ArmStyle("#000000", "solid", "circle", "a")}
    )
    drawn = next(trace for trace in figure.drawing.data if trace.name == "chance")
    assert (len(drawn.x), drawn.mode) == (sum(chance is not None for chance in chances), mode)
    assert ("chance" in figure.note) == bool(words) and words in figure.note


def test_a_stored_run_is_asked_other_difficulties(
    ran: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    store, digest = ran[0].parents[1], ran[1]["runs"][0]["digest"]
    asked = ["eval", digest, "--store", str(store), "--json"]
    assert main([*asked, "--at", "pairs=1,8", "--limit", "4"]) == 0
    levels = json.loads(capsys.readouterr().out)["sections"]["diagnostics"]["rows"]
    assert [(level["level"]["pairs"], level["length"]) for level in levels] == [(1, 4), (8, 32)]
    for wrong, reason in (
        (["--at", "pears=1"], "--at: pears is not a difficulty of mqar (did you mean 'pairs'?)"),
        (["--at", "pairs=9"], "--at: 9 pairs need at least as many keys and values"),
        (["--at", "pairs"], "--at: expected whole numbers, as in pairs=4,64, not 'pairs'"),
        (["--tasks", "heldout_text"], "--tasks: needs held-out text, but mqar has none"),
        (["--samples"], "--samples: needs held-out text, but mqar has none"),
        (["--fewshot", "0"], "--fewshot: needs held-out text, but mqar has none"),
        (["--data", "mqar=."], "--data: needs held-out text, but mqar has none"),
        (["--at", "pairs=2", "pairs=4"], "--at: pairs is given twice"),
    ):
        assert main([*asked, *wrong]) == 2
        assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "more", "line"),
    [
        (DATA, "evals: {tasks: [heldout_text]}", "evals.tasks: needs held-out text, but mqar has none"),
        (
            DATA,
            "scales: {cpu: {arms.wide.data.tokenizer: bytes}}",
            "arms.wide.data.tokenizer: all arms must have the same task",
        ),
        (DATA, "evals: {limit: 4}", "evals.limit: needs held-out text, but mqar has none"),
        (DATA, "evals: {data: {mqar: .}}", "evals.data: needs held-out text, but mqar has none"),
        (DATA, "evals: {positions: {}}", "evals.positions: needs held-out text, but mqar has none"),
        (DATA, "evals: {diagnostics: {at: {pairs: [9]}}}", "evals.diagnostics.at: 9 pairs need at least as many keys"),
        (DATA.replace("8]", "16]"), "", "data: 16 pairs need at least as many keys and values"),
        (DATA.replace("pair: 4", "pair: 5"), "", "train.context: the longest example of mqar has 40 tokens"),
        (DATA.replace("pairs: [2", "pears: [2"), "", "data.pears: unknown key (did you mean 'pairs'?)"),
        (DATA.replace("source", "tokenizer: bytes, source"), "", "data.tokenizer: unknown key (a setting of files"),
        (DATA, SEARCH.format("bits_per_byte"), "search.objectives: mqar has no bytes: there is no bits_per_byte"),
        ("stdlib", SEARCH.format("accuracy"), "search.objectives: text has no answers: there is no accuracy"),
        ("stdlib", "evals: {diagnostics: {}}", "evals.diagnostics: needs a synthetic task, but stdlib is text"),
    ],
)
def test_what_does_not_go_together_is_said_in_a_line(data: str, more: str, line: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError) as error:
        make_plan(load_study(study_file(tmp_path, data, more), "cpu"))
    assert line in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_evals_are_of_the_task_where_nothing_is_said(tmp_path: Path) -> None:
    plan = make_plan(load_study(study_file(tmp_path), "cpu"))
    assert plan.evals is not None
    assert plan.evals.tasks == ()
    assert plan.evals.diagnostics is not None
    assert make_plan(load_study(study_file(tmp_path, more="evals: null"), "cpu")).evals is None


def test_flops_are_those_of_the_rows_that_are_trained_on(tmp_path: Path) -> None:
    """2, 4 and 8 pairs of 4 tokens are rows of 8, 16 and 32, a third of the steps each."""
    arm = make_plan(load_study(study_file(tmp_path), "cpu")).arms[0]
    each = [zoo.cost(arm.spec, context=width).flops_per_token for width in (8, 16, 32)]
    assert arm.flops_per_token == pytest.approx(sum(each) / 3)
    assert zoo.cost(arm.spec, context=32).flops_per_token > arm.flops_per_token


def test_another_source_at_a_scale_drops_what_it_does_not_have(tmp_path: Path) -> None:
    more = "scales: {smoke: {data.source: copying}, gpu: {data: {source: copying, length: 5}}}"
    path = study_file(tmp_path, more=more)
    kept = {"source": "copying", "validation_examples": 30}
    assert kept.items() <= load_study(path, "smoke").data.model_dump().items()
    assert load_study(path, "gpu").data.model_dump()["length"] == (5,)


@pytest.mark.slow
def test_a_trained_model_comes_near_the_floor(tmp_path: Path) -> None:
    """A grammar of 4 states: the loss falls from that of guessing to within 0.02 nats of the entropy, not below it."""
    data = "{source: grammar, states: 4, symbols: 6, branching: 2, length: 32, validation_examples: 256}"
    path = study_file(tmp_path, data, tokens=400 * 32 * 16)
    larger = ("d_model: 16, n_layers: 1", "d_model: 32, n_layers: 2")
    path.write_text(path.read_text().replace(*larger).replace("batch: 4", "batch: 16"))
    store = tmp_path / "runs"
    assert main(["run", str(path), "--scale", "cpu", "--store", str(store), "--engine", "inprocess", "--json"]) == 0
    summary = summarise_study(store / "studies" / "recall-cpu")
    source = load_study(path, "cpu").data
    assert isinstance(source, GrammarSource)
    for arm in summary.arms:
        assert arm.excess is not None
        assert arm.loss is not None
        assert -0.001 < arm.excess.mean < 0.02
        assert arm.loss.mean - arm.excess.mean == pytest.approx(entropy(source, 32), abs=0.03)
