"""Studies from Python: every way to name one, what comes back, and what a caller's process keeps."""

from __future__ import annotations

import json
import re
import shutil
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
import torch
from ruamel.yaml import YAML

import ablate
from ablate.api.named import named_folder
from ablate.running import progress
from ablate.running.context import open_context
from ablate.running.engines import Event
from ablate.study.reading import load_study
from ablate.wings.named.runs import named_run
from store import Store

QUIET: dict[str, Any] = {"engine": "inprocess", "progress": False}


@pytest.fixture(scope="module")
def trained(study: Path, tmp_path_factory: pytest.TempPathFactory) -> ablate.StudyResult:
    """The tiny study, trained."""
    return ablate.run(study, scale="cpu", store=tmp_path_factory.mktemp("api") / "runs", **QUIET)


@pytest.fixture
def store(trained: ablate.StudyResult, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained.store.root, tmp_path / "runs"))


@pytest.fixture
def question(study: Path) -> dict[str, Any]:
    """The same study as a map, with what YAML has no word for: a path and a tuple."""
    data: dict[str, Any] = YAML(typ="safe", pure=True).load(study)
    data["data"]["paths"] = [study.parent / "texts" / "*.txt"]
    data["train"]["betas"] = (0.9, 0.95)
    return data


def digests(plan: ablate.StudyPlan) -> list[str]:
    return list(plan.runs["digest"])


def test_a_map_plans_the_runs_that_its_file_would(study: Path, question: dict[str, Any], tmp_path: Path) -> None:
    mapped = ablate.plan(question, scale="cpu", store=tmp_path)
    written = ablate.plan(study, scale="cpu", store=tmp_path, sets=["train.betas=[0.9, 0.95]"])
    assert digests(mapped) == digests(written)
    assert len(set(digests(mapped))) == 4
    assert list(tmp_path.iterdir()) == []


def test_a_map_is_named_by_its_content_unless_it_is_given_a_name(question: dict[str, Any]) -> None:
    names = [ablate.load_study(each, "cpu").name for each in (question, dict(question), question | {"seeds": 3})]
    assert names[0] == names[1] != names[2]
    assert ablate.load_study(question, "cpu", name="mine").name == "mine"


def test_edits_are_a_map_or_words(study: Path) -> None:
    for sets in ({"seeds": 1, "train.lr": 1e-3}, ["seeds=1", "train.lr=1e-3"]):
        found = ablate.load_study(study, "cpu", sets)
        assert (found.seeds, found.train.lr) == ((0,), 1e-3)


def test_a_study_that_was_read_keeps_its_edits(study: Path) -> None:
    first = ablate.load_study(study, "cpu", {"seeds": 1})
    assert ablate.load_study(first) is first
    second = ablate.load_study(first, sets={"train.lr": 1e-3})
    assert (second.scale, second.seeds, second.train.lr) == ("cpu", (0,), 1e-3)


@pytest.mark.parametrize(("device", "scale"), [("cpu", "cpu"), ("cuda", "gpu")])
def test_the_scale_follows_the_device(study: Path, monkeypatch: pytest.MonkeyPatch, device: str, scale: str) -> None:
    """A machine with a GPU that is asked to use its CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    context = open_context("runs", {"device": device, "engine": "inprocess"})
    assert load_study(study, device=context.device).scale == scale
    assert load_study(study, "gpu", device=context.device).scale == "gpu"


def test_a_word_is_the_name_of_a_study_that_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [arm.name for arm in ablate.load_study("norm_placement", "smoke").arms] == ["pre", "post", "double"]
    with pytest.raises(
        ablate.StudyError, match=r"neither a file nor the name of a shipped study \(did you mean 'norm_placement'\?\)"
    ):
        ablate.load_study("norm_placment", "smoke")


@pytest.mark.parametrize(
    ("edits", "sets", "message"),
    [
        (
            {"arms": {"post": {"block.norm_placment": "post"}}},
            (),
            "arms.post.block.norm_placment: unknown key (did you",
        ),
        ({"train": {"lr": -1.0}}, (), "train.lr: must be greater than 0, not -1.0"),
        ({"seeds": {1, 2}}, (), "seeds: must be plain data (text, numbers, lists and maps), not set"),
        ({"train": {1: 2}}, (), "train.1: a key must be text, not int"),
        ({}, {"train.lrr": 1}, "sets: train.lrr: unknown key (did you mean 'lr'?)"),
        ({}, {"train.": 1}, "sets: expected a dotted path such as train.lr, not 'train.'"),
        ({}, ["train.lrr=1"], "--set train.lrr=1: train.lrr: unknown key (did you mean 'lr'?)"),
    ],
)
def test_a_mistake_is_one_line_with_its_path(
    question: dict[str, Any], edits: dict[str, Any], sets: Any, message: str
) -> None:
    with pytest.raises(ablate.StudyError) as error:
        ablate.load_study(question | edits, "cpu", sets)
    assert str(error.value).startswith(message)
    assert len(error.value.problems) == 1


def test_one_text_is_no_list_of_edits(study: Path) -> None:
    with pytest.raises(ablate.ArgumentError, match=r"sets: expected a map or a list \(of text\), not 'seeds=1'"):
        ablate.load_study(study, "cpu", "seeds=1")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"device": "tpu"}, "device: expected cpu or cuda, not 'tpu'"),
        ({"workers": 0}, "workers: expected a whole number from 1, not 0"),
        ({"checkpoint_seconds": -1.0}, "checkpoint_seconds: must be greater than or equal to 0, not -1.0"),
        ({"microbatch": "half"}, "microbatch: expected a number of rows, or auto, not 'half'"),
        ({"engine": "ryay"}, "unknown engine 'ryay': one of inprocess, local, ray, slurm"),
    ],
)
def test_an_argument_that_cannot_be_used_is_named(study: Path, argument: dict[str, Any], message: str) -> None:
    with pytest.raises(ablate.AblateError) as error:
        ablate.run(study, **argument)
    assert str(error.value) == message


def test_a_plan_says_that_its_arms_tune_first(question: dict[str, Any], tmp_path: Path) -> None:
    tune = {"space": {"train.lr": [1e-3, 3e-3]}, "seeds": 2, "fraction": 0.25}
    notes = ablate.plan({**question, "tune": tune}, store=tmp_path, device="cpu").notes()
    assert (
        "first, every arm tunes train.lr: 2 rates × 1 seed at a quarter of the length, then 3 rates × 2 seeds "
        "at full length, more where the best is at an edge or not clearly better than its neighbours"
    ) in notes


TAUGHT = {"block.ffn": "gelu", "teacher": {"arm": "post"}}


@pytest.mark.parametrize(
    "arms", [pytest.param({}, id="alone", marks=pytest.mark.slow), pytest.param({"taught": TAUGHT}, id="taught")]
)
def test_a_plan_says_how_far_tuning_is(question: dict[str, Any], tmp_path: Path, arms: dict[str, Any]) -> None:
    """Two rates at a quarter of the length, then three with two seeds: of each arm 0.5 + 6 runs of the whole. A teacher
    is trained for its student's trials, and is none of them."""
    tuned = question | {"tune": {"space": {"train.lr": [1e-3, 3e-3]}, "seeds": 2, "fraction": 0.25, "extend": 0}}
    tuned["arms"] = {**tuned["arms"], **arms}
    first = ablate.plan(tuned, store=tmp_path, device="cpu")
    assert (first.tuned, first.document()["tuning"]) == (False, {"done": 0, "next": 4})
    assert not [note for note in first.notes() if note.startswith("tuning has begun")]
    assert ablate.run(tuned, store=tmp_path, **QUIET).trained
    whole = ablate.plan(tuned, store=tmp_path, device="cpu")
    assert (whole.tuned, whole.document()["tuning"], whole.time.tuning) == (True, None, 0)

    (document,) = tmp_path.glob("studies/*/study.json")
    tunings = json.loads(document.read_text())["tuning"]
    passes = [each for tuning in tunings for each in (*tuning["coarse"], tuning)]
    trials = {run for each in passes for trial in each["trials"] for run in trial["runs"]}
    assert len(trials) == 8 * (2 + len(arms))
    (tmp_path / tunings[-1]["trials"][-1]["runs"][0] / "result.json").unlink()
    again = ablate.plan(tuned, store=tmp_path, device="cpu")
    assert (again.tuned, again.document()["tuning"]) == (False, {"done": len(trials) - 1, "next": 1})
    assert f"tuning has begun: {len(trials) - 1} of its runs are in {tmp_path}/; planned next: 1" in again.notes()
    a_run = again.planned[-1].estimated_seconds(again.speed)
    assert again._tuning_seconds == pytest.approx(a_run, rel=0.1)


@pytest.mark.parametrize(
    ("tune", "rates"),
    [
        ("off", {"how": "written", "where": None}),
        ("carried", {"how": "carried", "where": None}),
        ({"carried": "LOG.md"}, {"how": "carried", "where": "LOG.md"}),
        ("auto", {"how": "tuned", "where": None}),
        ({"space": {"train.warmup": [0, 0.1]}}, {"how": "written", "where": None}),
    ],
)
def test_a_plan_says_how_rates_are_set(question: dict[str, Any], tmp_path: Path, tune: Any, rates: Any) -> None:
    assert ablate.plan({**question, "tune": tune}, store=tmp_path, device="cpu").document()["rates"] == rates


def test_what_is_planned_is_what_is_trained(trained: ablate.StudyResult, study: Path) -> None:
    plan = ablate.plan(study, scale="cpu", store=trained.store.root)
    assert set(digests(plan)) == set(trained.runs["digest"])
    assert plan.runs["reused"].all()
    assert plan.arms.select("arm", "parameters", "steps", "tokens").equals(
        trained.arms.select("arm", "parameters", "steps", "tokens")
    )
    assert plan.document()["runs"][0]["reused"] is True
    assert "<td>post</td>" in plan._repr_html_()


def test_frames_have_the_numbers_of_the_store(trained: ablate.StudyResult) -> None:
    losses: dict[str, list[float]] = {}
    for row in trained.runs.sort("seed").iter_rows(named=True):
        result = json.loads((trained.store.root / row["digest"] / "result.json").read_text())
        assert (row["status"], row["loss"]) == (result["status"], result["loss"])
        losses.setdefault(row["arm"], []).append(result["loss"])
    means = {arm: sum(of) / len(of) for arm, of in losses.items()}
    assert dict(trained.arms.select("arm", "loss").iter_rows()) == pytest.approx(means)
    (contrast,) = trained.contrasts.iter_rows(named=True)
    assert (contrast["arm"], contrast["baseline"], contrast["pairs"]) == ("post", "pre", 2)
    assert contrast["difference"] == pytest.approx(means["post"] - means["pre"])
    assert contrast["low"] < contrast["difference"] < contrast["high"]
    assert trained.verdicts["post"].difference == contrast["difference"]
    assert trained.verdicts["post"].interval == (contrast["low"], contrast["high"])
    assert [verdict.word for verdict in trained.verdicts.values()] == list(trained.arms["verdict"])
    assert list(trained.arms.to_pandas()["arm"]) == ["pre", "post"]


def test_figures_are_those_of_the_page(trained: ablate.StudyResult) -> None:
    page = trained.document()["report"]
    assert [name for name in trained.figures() if f'id="{name}"' not in Path(page).read_text()] == []
    for name in ("difference-curves", "differencecurves", "Difference_curves"):
        assert isinstance(trained.figure(name), go.Figure)
    trained.figure("differences").update_layout(title="mine")
    assert trained.figure("differences").layout.title.text is None
    with pytest.raises(ablate.ArgumentError, match=r"there is no figure 'trade'( \(did you mean|: one of losses, )"):
        trained.figure("trade")


def test_a_notebook_shows_answer_and_every_arm_without_script_or_network(trained: ablate.StudyResult) -> None:
    html = trained._repr_html_()
    assert f"<strong>{trained.headline}</strong>" in html
    assert html.count('role="rowheader"') == len(trained.arms)
    assert not re.search("<script|<link|<iframe|http", html)
    assert len(html.encode()) < 60_000


def test_the_second_time_says_nothing_and_trains_nothing(
    study: Path, store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = ablate.run(study, scale="cpu", store=str(store), **QUIET)
    assert (result.trained, result.reused, result.failed, result.skipped) == (0, 4, (), ())
    assert capfd.readouterr() == ("", "")


def test_a_caller_is_given_each_line(study: Path, store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    ablate.run(study, scale="cpu", sets={"seeds": 3}, store=store, engine="inprocess", progress=lines.append)
    assert lines[0].startswith("2 of these seeds were judged before: in another set they give no verdict")
    assert lines[1].startswith("will probably end worse than a bigram table of the text")
    assert lines[2] == "seeds: 6 runs, 2 to train, 4 in the store already"
    assert re.fullmatch(r"scale cpu on .+, 1 run at once: about \d+:\d\d in all: .* of training, .*", lines[3])
    assert lines[4].startswith("Undertrained: ")
    ended = [line.partition(":")[0] for line in lines if line.startswith("[")]
    assert ended == ["[1/2] pre seed 2", "[2/2] post seed 2"]
    assert capfd.readouterr() == ("", "")


def test_settings_of_torch_are_the_callers_again(study: Path, tmp_path: Path) -> None:
    """One thread, flushed denormals and a fast matmul are for training; the caller has work of their own."""

    def settings() -> tuple[int, str, float]:
        return torch.get_num_threads(), torch.get_float32_matmul_precision(), float(torch.tensor([1e-40]) * 1)

    torch.set_num_threads(2)
    torch.set_float32_matmul_precision("highest")
    before = settings()
    assert before[2] > 0
    ablate.run(study, scale="cpu", sets={"seeds": 1, "budget.tokens": 256}, store=tmp_path, **QUIET)
    assert settings() == before


class Failing:
    """An engine whose every run fails."""

    device, where, here, at_once = "cpu", "a CPU", True, 1

    def run(self, requests: Any) -> Any:
        for request in requests:
            yield Event("started", request.digest)
            yield Event("failed", request.digest, "it was out of luck")


def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablate.running.context.load", lambda *_: Failing())


def test_runs_that_fail_are_named_and_raise_nothing(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch)
    result = ablate.run(study, scale="cpu", store=tmp_path, progress=False)
    assert [str(failure) for failure in result.failed] == [
        f"{arm}, seed {seed}: it was out of luck" for seed in (0, 1) for arm in ("pre", "post")
    ]
    assert list(result.runs["status"].unique()) == ["absent"]
    assert "failed: pre, seed 0" in result._repr_html_()


def test_without_an_arm_that_was_trained_there_are_no_numbers(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch)
    tune = {"tune": {"space": {"train.lr": [1e-3, 1e-2]}}}
    result = ablate.run(study, scale="cpu", sets=tune, store=tmp_path, progress=False)
    frames = (result.arms, result.runs, result.contrasts, result.scores)
    assert [frame.height for frame in frames] == [0] * 4
    assert (result.report, result.verdicts, result.figures(), result.table()) == (None, {}, [], ())
    assert "No arm has been trained." in result._repr_html_()


def test_another_study_of_the_same_name_is_refused(study: Path, store: Path, question: dict[str, Any]) -> None:
    named = ablate.load_study(question, "cpu", name="tiny")
    with pytest.raises(ablate.StudyError, match=r"has the report of another study of this name, .*tiny\.yaml"):
        ablate.run(named, store=store, **QUIET)


def test_a_map_may_be_edited_and_run_again(question: dict[str, Any], store: Path) -> None:
    """A notebook's cell has no file that could be another's."""
    for seeds in (1, 2):
        read = ablate.load_study(question | {"seeds": seeds, "budget": {"tokens": 256}}, "cpu", name="cell")
        result = ablate.run(read, store=store, **QUIET)
    assert (result.trained, result.reused) == (2, 2)
    (document,) = store.glob("studies/cell-cpu/study.json")
    assert json.loads(document.read_text())["path"] is None


def test_a_store_is_browsed(trained: ablate.StudyResult, store: Path) -> None:
    runs = ablate.open(str(store))
    (row,) = runs.studies.iter_rows(named=True)
    assert {name: row[name] for name in ("name", "scale", "arms", "runs", "ended")} == {
        "name": "tiny",
        "scale": "cpu",
        "arms": 2,
        "runs": 4,
        "ended": 4,
    }
    assert set(runs.runs["digest"]) == set(trained.runs["digest"])
    again = runs.result("tiny")
    assert again.contrasts.equals(trained.contrasts)
    assert again.report == store / "studies" / "tiny-cpu" / "report.html"
    first = runs.runs.row(0, named=True)
    assert sum(p.numel() for p in runs.model(first["digest"][:8]).parameters()) == first["parameters"]
    assert runs.searches.height == 0
    arms = {(arm, seed): digest for arm, seed, digest in trained.runs.select("arm", "seed", "digest").iter_rows()}
    for name, place in {"tiny/post": ("post", 0), "tiny-cpu/post/1": ("post", 1), "tiny/pre/1": ("pre", 1)}.items():
        assert named_run(name, store, Store.runs)[1] == arms[place]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda runs: runs.result("tinny"), r"there is no study 'tinny' in .*/ \(did you mean 'tiny'\?\)"),
        (lambda runs: runs.result("tiny", "gpu"), "scale: choose one of the study's scales in the store: cpu"),
        (lambda runs: runs.model("0000"), "0000: there is no such run in .*/: give a digest, STUDY/ARM or"),
        (lambda runs: runs.model("tiny/pots"), r"tiny-cpu has no arm 'pots' \(did you mean 'post'\?\)"),
        (lambda runs: runs.model("tiny/post/7"), "no run of post has the seed 7, only 0, 1"),
        (lambda runs: runs.model("tinny/post"), "tinny/post: there is no such run in "),
        (
            lambda runs: runs.model("norm_placement/pre"),
            "norm_placement has not been run in .*: `ablate run norm_placement --store ",
        ),
        (
            lambda runs: named_folder("norm_placement", None, runs.store.root),
            "norm_placement: it has not been run in .*: `ablate run norm_placement --store ",
        ),
        (lambda runs: ablate.open(runs.store.root / "nowhere"), "nowhere is not a folder"),
        (lambda runs: ablate.report(runs.store.root / "nowhere"), "nowhere is not a study, search or store"),
    ],
)
def test_what_a_store_lacks_is_one_line(
    trained: ablate.StudyResult, ask: Callable[[ablate.Runs], Any], message: str
) -> None:
    with pytest.raises(ablate.AblateError, match=message) as error:
        ask(ablate.open(trained.store.root))
    assert len(str(error.value).splitlines()) == 1


def test_what_ended_a_worker_is_found_in_the_store(store: Path) -> None:
    digest = ablate.open(store).runs["digest"][0]
    (store / digest / "result.json").unlink()
    (store / digest / "error.txt").write_text("ValueError: no luck\n\nTraceback")
    (failure,) = ablate.open(store).result("tiny").failed
    assert (failure.digest, failure.error) == (digest, "ValueError: no luck")


def test_pages_are_rendered_again(store: Path) -> None:
    folder = store / "studies" / "tiny-cpu"
    (folder / "report.html").unlink()
    assert ablate.report(str(folder)) == folder / "report.html"
    assert ablate.report(str(store)) == store / "index.html"


def test_an_evaluation_is_a_frame(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest, lines = ablate.open(store).runs["digest"][0], list[str]()
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    found = ablate.evaluate(store / digest, tasks=["heldout_text"], limit=2, progress=lines.append)
    assert re.fullmatch(r"tasks (\d+)/\1", lines[-1])  # passes of the model over parts of the two texts
    (document,) = (store / digest).glob("evals-*.json")
    stored = json.loads(document.read_text())["scores"]["heldout_text"]
    values = {metric: score["value"] for metric, score in stored.items()}
    assert dict(found.frame.filter(task="heldout_text").select("metric", "value").iter_rows()) == values
    assert found.frame.height == len(values) > 1
    for settings, message in (
        ({"taskz": ["heldout_text"]}, "taskz: unknown key (did you mean 'tasks'?)"),
        ({"at": {"pairs": [4]}}, "at: needs a synthetic task, but this run's data is text"),
        ({"limit": 0}, "limit: must be greater than 0, not 0"),
    ):
        with pytest.raises(ablate.ArgumentError) as error:
            ablate.evaluate(digest, store=store, **settings)  # type: ignore[arg-type]
        assert str(error.value) == message


def test_a_stored_run_goes_on_with_a_text(store: Path) -> None:
    digest = ablate.open(store).runs["digest"][0]
    (found,) = ablate.generate(digest, "norm ", tokens=4, store=store)
    assert found.text == "norm " + found.new[0]
    again = ablate.generate(digest, ["norm ", "scale "], tokens=4, store=store)
    assert again[0] == found
    with pytest.raises(ablate.ArgumentError, match=r"^top_p: "):
        ablate.generate(digest, "norm ", top_p=2.0, store=store)


def test_a_search_is_a_frame_of_trials(question: dict[str, Any], tmp_path: Path) -> None:
    question = {key: value for key, value in question.items() if key != "arms"}
    space = {"train.lr": {"log": [1e-3, 1e-1]}, "block.ffn.d_ff": ["4x", 32]}
    question |= {"search": {"space": space, "trials": 3, "sampler": "random"}, "budget": {"tokens": 512}}
    asked = ablate.load_study(question, "cpu", name="space")
    found = ablate.search(asked, store=tmp_path, **QUIET)
    assert found.trials.columns == ["number", "state", "best", "loss", "train.lr", "block.ffn.d_ff"]
    assert set(found.trials["block.ffn.d_ff"]) <= {"4x", "32"}
    assert found.trials["state"].to_list() == ["finished"] * 3
    (best,) = found.best.iter_rows(named=True)
    base, confirmed = found.document()["confirmed"]
    assert (base["arm"], confirmed["arm"]) == (asked.baseline, f"trial_{best['number']}")
    runs = [ablate.open(tmp_path).runs.filter(digest=digest) for digest in (*base["runs"], *confirmed["runs"])]
    assert [run["seed"][0] for run in runs] == [0, 1, 2, 0, 1, 2]
    # what is called the best has the mean of its fresh seeds, not the score that selected it
    assert best["loss"] == pytest.approx(statistics.fmean(value for (value,) in confirmed["values"]))
    assert f"Trial {best['number']} " in found.headline and "over 3 fresh seeds, a difference of" in found.headline
    assert found.document()["trials"] == {"finished": 3}
    assert found.report.is_file() and found.failed == ()
    (row,) = ablate.open(tmp_path).searches.iter_rows(named=True)
    assert (row["name"], row["trials"], row["best"]) == ("space", 3, 1)
    with pytest.raises(ablate.StudyError, match="there are no arms to train"):
        ablate.run(asked, store=tmp_path)
    with pytest.raises(
        ablate.StudyError, match=r"study-[0-9a-f]{8}: has no search section, so there is nothing to search"
    ):
        ablate.search({**question, "search": None, "arms": {"post": {"block.norm_placement": "post"}}}, store=tmp_path)
    said: list[str] = []
    fewer = {**question, "search": {"space": {"train.lr": space["train.lr"]}, "trials": 1, "sampler": "random"}}
    edited = ablate.load_study(fewer, "cpu", name="space")
    ablate.search(edited, store=tmp_path, engine="inprocess", progress=said.append)
    assert any("the search was edited and starts over; its 3 earlier trials are kept" in line for line in said), said
