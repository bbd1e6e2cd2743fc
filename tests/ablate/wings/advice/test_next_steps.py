"""Advice of a page on what to do next: the command that follows from its verdicts."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reports
from ablate.api.result import StudyResult
from ablate.cli import main
from reports.judge.findings.next_steps import NextStep, next_steps
from store import Store
from store.documents.study import ScaleForecast
from store.documents.tuning import StudyPass, StudyRates, StudyTrial, StudyTuning
from tests.ablate.noise.test_moderated import p_values
from tests.reports.factory import Arm, StudyOf

BASE = [2.40, 2.41, 2.39, 2.405, 2.395]

OPEN = StudyOf([Arm("base", BASE), Arm("arm", [2.41, 2.40, 2.41, 2.39, 2.40])])


def commands(root: Path, arm: list[float]) -> list[str]:
    other = [2.41, 2.40, 2.41, 2.39, 2.40]
    study = StudyOf([Arm("base", BASE), Arm("arm", arm), Arm("other", other)])
    return [step.command for step in next_steps(reports.summarise(study.write(root)))]


def test_a_settled_study_goes_to_the_next_scale(tmp_path: Path) -> None:
    found = commands(tmp_path, [2.6, 2.61, 2.59, 2.605, 2.595])
    assert found[-1] == f"ablate run norm_placement --scale cpu-long --store {tmp_path}"


def test_the_next_scale_comes_with_the_time_that_was_foretold_for_it(tmp_path: Path) -> None:
    study = StudyOf([Arm("base", BASE), Arm("arm", [2.6, 2.62, 2.58, 2.605, 2.595])])
    summary = reports.summarise(study.write(tmp_path))

    def last(scale: str, forecast: ScaleForecast | None) -> tuple[str, float | None, bool]:
        changed = summary.study.model_copy(update={"scale": scale, "forecast": forecast})
        step = next_steps(replace(summary, study=changed))[-1]
        return step.command.partition(" --store")[0], step.seconds, step.tunes

    longer, carried = (
        ScaleForecast(scale="cpu-long", tuning=60, training=20),
        ScaleForecast(scale="cpu", tuning=0, training=9),
    )
    assert last("cpu", None) == ("ablate run norm_placement --scale cpu-long", None, False)
    assert last("cpu", longer) == ("ablate run norm_placement --scale cpu-long", 80, True)
    assert last("cpu", carried)[1] is None  # that of another scale
    assert last("smoke", carried) == ("ablate run norm_placement --scale cpu", 9, False)


def test_an_open_study_gets_fresh_seeds_that_have_the_power_they_promise(tmp_path: Path) -> None:
    """In simulated studies, at what a second round may spend: a tenth of 5 %."""
    study = StudyOf([Arm("base", BASE), Arm("arm", [2.41, 2.40, 2.41, 2.39, 2.40])])
    summary = reports.summarise(study.write(tmp_path))
    step = next_steps(summary)[0]
    seeds = [int(text) for text in step.command.partition("[")[2].partition("]")[0].split(",")]
    assert min(seeds) == 5 and step.chance == 0.8 and step.seconds is not None
    noise = summary.noise.ahead
    assert noise is not None
    y = np.random.default_rng(0).normal(0, noise.sd, (4000, 2, len(seeds)))
    y[:, 1] += 0.02
    found = np.mean(p_values(y, noise.sd) < 0.005)
    assert found == pytest.approx(0.82, abs=0.06)


def test_seeds_have_to_find_what_tuning_does_not_leave_open(tmp_path: Path) -> None:
    study = StudyOf([Arm("base", BASE), Arm("arm", [2.41, 2.40, 2.41, 2.39, 2.40])])
    summary = reports.summarise(study.write(tmp_path))
    base, arm = summary.arms
    assert arm.comparison is not None

    def seeds(room: float, margin: float) -> int:
        tuned = replace(arm, comparison=replace(arm.comparison, tuning_room=room))
        study = summary.study.model_copy(update={"margin": margin})
        first = next_steps(replace(summary, study=study, arms=(base, tuned)))[0].command
        return first.partition("[")[2].count(",")

    assert seeds(0.005, 0.025) == seeds(0.0, 0.02) > seeds(0.0, 0.025) > 0
    assert seeds(0.02, 0.02) == 0  # no number of seeds would do


def test_a_smoke_run_asks_for_the_real_one(tmp_path: Path) -> None:
    study = StudyOf([Arm("base", BASE), Arm("arm", BASE[::-1])])
    summary = reports.summarise(study.write(tmp_path))
    smoke = replace(summary, study=summary.study.model_copy(update={"scale": "smoke"}))
    assert " --scale cpu " in next_steps(smoke)[0].command


def test_the_page_has_it(tmp_path: Path) -> None:
    study = StudyOf([Arm("base", BASE), Arm("arm", [2.41, 2.40, 2.41, 2.39, 2.40])])
    folder = study.write(tmp_path)
    page = reports.render(folder, reports.summarise(folder)).read_text(encoding="utf-8")
    assert 'class="next"' in page and "fresh seeds" in page and "80 % chance" in page


def test_a_pilot_has_intervals_and_leaves_no_trace_in_the_ledger(tmp_path: Path) -> None:
    study = StudyOf([Arm("base", BASE), Arm("arm", [2.6, 2.62, 2.58, 2.605, 2.595])])
    folder, store = study.write(tmp_path), Store(tmp_path)
    document = study.document().model_copy(update={"pilot": True})
    store.study(study.name, "cpu").write(document)
    summary = reports.summarise(folder)
    arm = summary.arms[1]
    assert (arm.verdict, arm.comparison and arm.comparison.p_holm) == ("no verdict", None)
    assert arm.comparison is not None and arm.comparison.difference is not None and arm.comparison.difference.low
    assert "pilot" in (arm.withheld or "")
    reports.render(folder, summary)
    assert store.read_ledger(study.name) == ()
    assert next_steps(summary)[0].command.endswith(f'--set pilot=false --set "seeds=[5,6,7,8,9]" --store {tmp_path}')
    store.study(study.name, "cpu").write(study.document())
    judged = reports.summarise(folder)
    assert judged.arms[1].verdict == "worse"
    reports.render(folder, judged)
    assert len(store.read_ledger(study.name)) == 1


def test_an_arm_that_fails_at_the_rate_of_another_needs_no_other_rate(tmp_path: Path) -> None:
    """Its twin trains at a rate of its own; an arm without one may train somewhere."""
    post = {"block.norm_placement": "post"}
    failed = [9.0, 9.0, 9.0, 9.0, 9.0]
    arms = [
        Arm("base", BASE),
        Arm("post", [2.6, 2.62, 2.58, 2.605, 2.595], edits={**post, "train.lr": 0.016}),
        Arm("post_same_rate", failed, edits=post, diverged=range(5)),
    ]
    steps = next_steps(reports.summarise(StudyOf(arms).write(tmp_path / "twin")))
    assert [step.command for step in steps] == [f"ablate run norm_placement --scale cpu-long --store {tmp_path}/twin"]
    alone = next_steps(reports.summarise(StudyOf([arms[0], arms[2]]).write(tmp_path / "alone")))
    assert alone[0].command == f"ablate run norm_placement --scale cpu --set tune=auto --store {tmp_path}/alone"


def test_a_command_repeats_the_edits_that_it_does_not_replace(tmp_path: Path) -> None:
    study = StudyOf([Arm("base", BASE)]).document()
    edited = study.model_copy(update={"sets": {"data": {"source": "stdlib"}, "seeds": 2}})
    assert edited.command() == 'ablate run norm_placement --scale cpu --set \'data={"source": "stdlib"}\' --set seeds=2'
    fresh = '--set "seeds=[5,6]"'
    assert (
        edited.command(fresh) == f'ablate run norm_placement --scale cpu --set \'data={{"source": "stdlib"}}\' {fresh}'
    )
    sets = {"base.d_model": 16, "base.block.ffn": "gelu", "budget": {"tokens": 9}, "margin": 0.02}
    larger = study.model_copy(update={"sets": sets}).command(scale="gpu")
    assert larger == "ablate run norm_placement --scale gpu --set 'base.block.ffn=\"gelu\"' --set margin=0.02"
    here = study.model_copy(update={"path": str(Path.cwd() / "my study.yaml")})
    assert here.command() == "ablate run 'my study.yaml' --scale cpu"


def test_a_command_repeats_its_plugins(tmp_path: Path) -> None:
    files = (str(Path.cwd() / "my fox.py"), "/elsewhere/delta.py")
    study = StudyOf([Arm("base", BASE)]).document().model_copy(update={"plugin_files": files, "sets": {"seeds": 2}})
    plugins = "--plugin 'my fox.py' --plugin /elsewhere/delta.py"
    assert study.command() == f"ablate run norm_placement --scale cpu {plugins} --set seeds=2"
    assert study.command(scale="gpu") == f"ablate run norm_placement --scale gpu {plugins}"
    there = study.model_copy(update={"engine": "--engine ray --address 10.0.0.1:6379"})
    assert there.command() == f"{study.command()} --engine ray --address 10.0.0.1:6379"
    assert there.portable.command() == "ablate run norm_placement --scale cpu --set seeds=2"


def test_every_next_step_has_the_plugins(tmp_path: Path) -> None:
    """On the terminal, in `--json` and on the page."""
    study = StudyOf([Arm("base", BASE), Arm("arm", [2.41, 2.40, 2.41, 2.39, 2.40])])
    folder, store = study.write(tmp_path), Store(tmp_path)
    document = study.document().model_copy(update={"plugin_files": ("/elsewhere/fox.py",)})
    store.study(study.name, "cpu").write(document)
    summary = reports.summarise(folder)
    steps = next_steps(summary)
    assert steps and all("--plugin /elsewhere/fox.py" in step.command for step in steps)
    page = reports.render(folder, summary).read_text(encoding="utf-8")
    assert page.count("--plugin /elsewhere/fox.py") >= len(steps)


def test_every_command_finds_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a command that means to go on would train everything again in runs/, which needs no option."""
    monkeypatch.chdir(tmp_path)
    elsewhere = f" --store {tmp_path.parent}/mine"
    for place, option in (("runs", ""), ("my runs", " --store 'my runs'"), ("../mine", elsewhere)):
        steps = commands(tmp_path / place, [2.41, 2.40, 2.41, 2.39, 2.40])
        assert len(steps) == 2
        for step in steps:
            assert step.endswith(option) and ("--store" in step) == bool(option)
            assert shlex.split(step)[:2] == ["ablate", "run"]


def test_an_undertrained_pilot_is_told_to_be_judged_once_it_is_longer(tmp_path: Path) -> None:
    """Marked `pilot: true`, a longer run alone would be another pilot."""
    summary = reports.summarise(OPEN.write(tmp_path))
    brief = [arm.model_copy(update={"steps": 50, "tokens_before": 0}) for arm in summary.study.arms]
    study = summary.study.model_copy(update={"pilot": True, "arms": tuple(brief)})
    (step,) = next_steps(replace(summary, study=study))
    assert "--set budget.flops=" in step.command and "--set pilot=false" in step.command


def test_seeds_that_were_judged_in_another_set_are_followed_by_fresh_ones(tmp_path: Path) -> None:
    """Beyond all that were ever judged, not only beyond those of this run."""
    losses = [2.6, 2.62, 2.58, 2.605, 2.595]
    folder = StudyOf([Arm("base", BASE), Arm("arm", losses)]).write(tmp_path)
    reports.render(folder, reports.summarise(folder))
    fewer = StudyOf([Arm("base", BASE[:4]), Arm("arm", losses[:4])])
    Store(tmp_path).study(fewer.name, "cpu").write(fewer.document())
    again = reports.summarise(folder)
    assert again.arms[1].verdict == "no verdict"
    (step,) = next_steps(again)
    assert '--set "seeds=[5,6,7,8]"' in step.command and step.seconds == pytest.approx(8 * 10.2, rel=0.05)


@pytest.mark.parametrize(
    ("margin", "why"),
    [
        (0.02, "more seeds do not help, since tuning leaves 0.03 nats uncertain, and the difference sought is 0.02"),
        (0.0301, "fresh seeds would be needed to detect 0.0301 nats"),
    ],
)
def test_where_seeds_do_not_help_the_step_says_why(tmp_path: Path, margin: float, why: str) -> None:
    summary = reports.summarise(OPEN.write(tmp_path))
    base, arm = summary.arms
    assert arm.comparison is not None
    tuned = replace(arm, comparison=replace(arm.comparison, tuning_room=0.03))
    study = summary.study.model_copy(update={"margin": margin})
    for next_scale, begins in (("gpu", "at the larger scale gpu on a GPU"), (None, "when trained 4 × as long")):
        changed = replace(summary, study=study.model_copy(update={"next_scale": next_scale}), arms=(base, tuned))
        (step,) = next_steps(changed)
        assert step.reason.startswith(f"see whether a difference shows {begins} (") and step.reason.endswith(f"{why})")


def test_longer_runs_take_as_much_longer_and_are_tuned_again(tmp_path: Path) -> None:
    """Two arms of five seeds took 10.2 s a run: 20 steps of 2,048 tokens at 4,000 tokens per second."""
    settled = StudyOf([Arm("base", BASE), Arm("arm", [2.6, 2.62, 2.58, 2.605, 2.595])], next_scale=None)
    summary = reports.summarise(settled.write(tmp_path))
    (step,) = next_steps(summary)
    runs = float(summary.runs["train_seconds"].sum())
    assert step.seconds == pytest.approx(4 * runs)
    trials = tuple(StudyTrial(settings={}, losses=(2.4, 2.5), runs=("a", "b")) for _ in range(3))
    half = StudyPass(fraction=0.5, trials=trials)
    known: dict[str, Any] = {"chosen": {}, "edges": (), "curve": (), "reason": None}
    tuning = [StudyTuning(arm=name, fraction=1, trials=trials, coarse=(half,), **known) for name in ("base", "arm")]
    tuned = replace(summary, study=summary.study.model_copy(update={"tuning": tuple(tuning)}))
    (again,) = next_steps(tuned)
    assert again.seconds == pytest.approx(4 * (runs + 2 * (6 + 3) * runs / 10))
    assert "of training and tuning" in again.words()


def test_a_report_has_every_key_that_a_run_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = OPEN.write(tmp_path)
    assert main(["report", str(folder), "--json"]) == 0
    printed, run = json.loads(capsys.readouterr().out), StudyResult.stored(folder).document()
    assert printed.keys() == run.keys()
    assert printed["next"] == run["next"] and "seeds=" in printed["next"][0]["command"]


def test_a_chance_is_that_of_a_difference_which_is_there(tmp_path: Path) -> None:
    step = next_steps(reports.summarise(OPEN.write(tmp_path)))[0]
    assert step.reason.startswith("detect a difference of 0.02 nats, if there is one: ")
    assert step.words().endswith("80 % chance)")


def test_where_there_is_no_larger_scale_training_is_longer(tmp_path: Path) -> None:
    """Until nothing is undertrained, and with rates that suit it."""
    study = StudyOf([Arm("base", BASE), Arm("arm", [2.6, 2.62, 2.58, 2.605, 2.595])], next_scale=None)
    summary = reports.summarise(study.write(tmp_path))
    (step,) = next_steps(summary)
    assert "--set budget." in step.command and step.reason.endswith("4 × as long")
    carried = StudyRates(how="carried", where="elsewhere")
    again = replace(summary, study=summary.study.model_copy(update={"rates": carried}))
    assert "--set tune=auto" in next_steps(again)[0].command
    brief = [arm.model_copy(update={"steps": 50, "tokens": 10**9, "tokens_before": 0}) for arm in summary.study.arms]
    short = replace(summary, study=summary.study.model_copy(update={"arms": tuple(brief)}))
    assert next_steps(short)[0].reason.endswith("10.2 × as long"), "500 steps even of the 49.5 that round to 50"


def test_one_seed_asks_for_more(tmp_path: Path) -> None:
    """It has not been judged, so that it may be one of those that are."""
    study = StudyOf([Arm("base", BASE[:1]), Arm("arm", [2.6])])
    (step,) = next_steps(reports.summarise(study.write(tmp_path)))
    assert '--set "seeds=[0,1,2]"' in step.command


def test_another_scale_is_asked_without_the_leave_to_judge_a_pilot(tmp_path: Path) -> None:
    study = StudyOf([Arm("base", BASE), Arm("arm", [2.6, 2.61, 2.59, 2.605, 2.595])])
    found = reports.summarise(study.write(tmp_path)).study.model_copy(update={"sets": {"pilot": False}})
    assert "pilot=false" in found.command() and "pilot" not in found.command(scale="cpu-long")


def test_page_and_terminal_say_what_a_step_takes_or_how_to_ask() -> None:
    known, unknown = NextStep("ablate run x", "see", 90.0, 0.8), NextStep("ablate run x --scale gpu-hour", "see")
    assert known.promise() == "about 2 minutes of training, one run after another, 80 % chance"
    assert known.promise(at_once=2) == "about 1 minute of training, 2 runs at once, 80 % chance"
    assert (
        NextStep("ablate run x", "see", 9000.0, tunes=True)
        .promise(1)
        .startswith("about 2.5 hours of training and tuning")
    )
    assert unknown.promise() == "ablate plan estimates the time"
