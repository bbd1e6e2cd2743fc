"""Power before training: what a plan says that its study will detect."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import ablate
from ablate.cli import main
from tests.ablate.noise.test_moderated import holm, p_values


def power(difference: float, sd: float, seeds: int, arms: int) -> float:
    """Share of simulated studies in which one arm among several is found at the 4 % of a first judgement."""
    y = np.random.default_rng(0).normal(0, sd, (4000, arms, seeds))
    y[:, 1] += difference
    return float(np.mean(holm(p_values(y))[:, 0] < 0.04))


def test_a_plan_says_what_its_study_will_detect_and_how_many_seeds_would_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty store knows the scatter that was measured elsewhere, 0.012 nats; the test has the study's own degrees of
    freedom alone."""
    study = "question: Which?\nbase: {preset: small, d_model: 48, n_layers: 2, block.mixer.heads: 4}\n"
    study += "arms: {post: {block.norm_placement: post}, double: {block.norm_placement: double}}\n"
    study += "seeds: 5\npilot: false\n"
    study += (
        "budget: {tokens: 2e5}\ntrain: {context: 32, batch: 4}\ndata: {source: stdlib, tokenizer: bytes}\ntune: off\n"
    )
    path = tmp_path / "mine.yaml"
    path.write_text(study, encoding="utf-8")
    plan = ablate.plan(path, store=tmp_path / "runs", device="cpu", progress=False)
    arms = len(plan.planned)
    assert plan.detectable is not None
    assert power(plan.detectable, 0.0120, 5, arms) == pytest.approx(0.8, abs=0.05)
    seeds = plan.detect(0.02).seeds
    assert seeds is not None
    assert power(0.02, 0.0120, seeds, arms) == pytest.approx(0.8, abs=0.06)
    given = ["plan", str(path), "--store", str(tmp_path / "runs"), "--device", "cpu", "--detect"]
    assert main([*given, "0.02", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["detect"]["seeds"] == seeds and document["detect"]["seconds"] > 0
    found = {arm["name"]: arm["detectable"] for arm in document["arms"]}
    assert [value is None for value in found.values()] == [True, *[False] * (arms - 1)]
    assert main([*given, "-1"]) == 2


def test_seeds_that_were_judged_leave_less_and_fresh_ones_are_asked_for(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first look takes 4 %, the second has 0.5 % of the 5 %; seeds that were judged are none of its own."""
    settings = ["--store", str(tmp_path / "runs"), "--device", "cpu", "--set", "pilot=false"]
    first = ["--set", "seeds=3"]
    assert main(["run", str(study), *settings, *first, "--engine", "inprocess"]) == 0
    capsys.readouterr()
    assert main(["plan", str(study), *settings, *first, "--detect", "0.05", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["detect"]
    assert (found["after"], found["level"]) == (2, pytest.approx(0.005))
    assert main(["plan", str(study), *settings, *first, "--detect", "0.05"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "fresh seeds detect 0.05 nats with 80 % power, at 0.5 %, what is left of the 5 %" in said
        and '"seeds=[3,' in said
    )
    assert "were shown before" not in said
    assert main(["plan", str(study), *settings, "--set", "seeds=5"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    warning = "3 of these seeds were judged before: in another set they give no verdict. Fresh seeds begin at 3"
    assert warning in said and "will probably detect" not in said
    assert "are judged at 0.5 %, what is left of the 5 % for this question" in said
    assert main(["plan", str(study), *settings, "--set", "seeds=5", "--detect", "0.05", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["detectable"] is None and found["unjudged"].startswith(warning)
    assert found["detect"]["unjudged"] is None and found["detect"]["seeds"] > 0, "fresh seeds would be judged"


@pytest.mark.slow
def test_a_run_says_first_what_it_will_probably_see(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--store", str(tmp_path / "runs"), "--device", "cpu", "--set", "pilot=false", "--set", "seeds=2"]
    given = [str(study), *settings, "--set", "tune={space: {train.lr: [1e-3, 2e-3]}, seeds: 1}"]
    assert main(["plan", *given, "--json"]) == 0
    sees = json.loads(capsys.readouterr().out)["detectable"]
    assert main(["run", *given, "--engine", "inprocess"]) == 0
    lines = capsys.readouterr().err.splitlines()
    said = [n for n, line in enumerate(lines) if f"will probably detect differences of {sees:.2g} nats" in line]
    assert len(said) == 1
    assert said[0] < next(n for n, line in enumerate(lines) if " to train, " in line)
    assert main(["run", *given, "--engine", "inprocess"]) == 0
    assert "probably" not in capsys.readouterr().err  # where nothing is trained


@pytest.mark.parametrize("engine", ["inprocess", pytest.param("local", marks=pytest.mark.slow)])
def test_a_run_says_how_long_it_takes_at_the_next_scale(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    """As that scale's plan has it with the edits that the next command repeats, also where nothing is trained."""
    store, written = tmp_path / "runs", tmp_path / "longer.yaml"
    small = study.read_text(encoding="utf-8").replace("texts/", f"{study.parent}/texts/")
    larger = "scales:\n  cpu: {budget.tokens: 1e3}\n  cpu-long: {budget.tokens: 1e5, tune: auto}\n"
    written.write_text(small + larger, encoding="utf-8")
    edit = ["--set", "base.block.ffn=gelu"]
    given = ["run", str(written), "--scale", "cpu", "--store", str(store), "--device", "cpu", "--engine", engine]
    for _ in range(2):
        assert main([*given, *edit, "--set", "train.lr=2e-3", "--json"]) == 0
        (step,) = [
            each for each in json.loads(capsys.readouterr().out)["next"] if "--scale cpu-long" in each["command"]
        ]
        assert "base.block.ffn" in step["command"] and "train.lr" not in step["command"]
    plan = ["plan", str(written), "--scale", "cpu-long", "--store", str(store), "--device", "cpu", "--json"]
    assert main([*plan, "--workers", "1", *edit]) == 0
    foretold = json.loads(capsys.readouterr().out)["seconds"]
    at_once = 1 if engine == "inprocess" else ablate.plan(written, scale="cpu", store=store, device="cpu").at_once
    assert step["seconds"] * at_once == pytest.approx(foretold["training"] + foretold["tuning"], rel=0.02)


def test_a_next_scale_that_cannot_be_planned_stops_no_run(study: Path, tmp_path: Path) -> None:
    """Nor does it keep the time that it had before the file changed."""
    store, written = tmp_path / "runs", tmp_path / "longer.yaml"
    small = study.read_text(encoding="utf-8").replace("texts/", f"{study.parent}/texts/")
    given = ["run", str(written), "--scale", "cpu", "--store", str(store), "--device", "cpu", "--engine", "inprocess"]
    found = []
    for tokens, sets in (("1e5", "seeds=1"), ("3", "seeds=2")):  # no step at all
        written.write_text(f"{small}scales:\n  cpu: {{budget.tokens: 1e3}}\n  cpu-long: {{budget.tokens: {tokens}}}\n")
        assert main([*given, "--set", sets]) == 0
        found.append(ablate.open(store).store.study("longer", "cpu").read())
    assert found[0].forecast is not None and found[1].forecast is None


def test_times_say_what_they_cover(study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of `--detect` have tuning and no measuring; the total has all that is known."""
    settings = ["--store", str(tmp_path / "runs"), "--device", "cpu", "--set", "pilot=false", "--set", "seeds=3"]
    given = ["plan", str(study), *settings, "--detect", "0.05"]
    tuned = ["--set", "tune={space: {train.lr: [1e-3, 2e-3]}, seeds: 1}"]
    assert main([*given, *tuned, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    parts, found = document["seconds"], document["detect"]
    assert parts["total"] == pytest.approx(sum(parts[name] or 0.0 for name in parts if name != "total"))
    assert parts["training"] > 0 and parts["tuning"] > 0 and document["at_once"] >= 1
    assert found["tuning_seconds"] == pytest.approx(parts["tuning"])
    assert found["seconds"] - found["tuning_seconds"] == pytest.approx(parts["training"] * found["seeds"] / 3)
    assert main([*given, *tuned]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"of training and tuning \(tuning \d+:\d\d\), excluding measuring and evaluation", said)
    assert main(given) == 0
    assert re.search(r"\d:\d\d of training, excluding measuring", " ".join(capsys.readouterr().out.split()))


@pytest.mark.parametrize(
    ("edit", "reason", "detects"),
    [
        ("pilot=true", "a pilot: it gives estimates but no verdicts", False),
        ("pilot=null", "no verdicts, as all arms are undertrained: ", False),
        ("seeds=1", "no verdicts: estimating the noise between seeds needs at least two (--set seeds=3)", True),
    ],
)
def test_where_nothing_will_be_judged_nothing_is_promised(
    edit: str, reason: str, detects: bool, study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The seeds that would do are told where more seeds are all that is wanting."""
    settings = ["--store", str(tmp_path / "runs"), "--device", "cpu", "--set", "pilot=false", "--set", edit]
    assert main(["plan", str(study), *settings, "--detect", "0.05", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["detectable"] is None and (found["detect"]["seeds"] is not None) == detects
    assert found["unjudged"].startswith(reason)
    assert main(["plan", str(study), *settings, "--detect", "0.05"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert reason in said and "probably" not in said
    assert ("as the study gives no verdicts" in said) != detects
    factor = re.search(r"no verdicts, as all arms are undertrained: ([\d.]+) × .* \(--set (budget\.\S+)\)", said)
    if factor is not None:
        longer = ablate.plan(study, store=tmp_path / "runs", device="cpu", progress=False, sets=[factor[2]])
        assert not any(arm.length.undertrained for arm in longer.planned)


@pytest.mark.slow
def test_a_plan_of_a_suggested_command_predicts_what_the_suggestion_says(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One number: the fewest fresh seeds that detect 0.02 nats after a run detect it in a plan of exactly that command,
    and one seed fewer does not."""
    options = {"pilot": False, "seeds": 4}
    result = ablate.run(study, sets=options, store=tmp_path / "runs", engine="inprocess", device="cpu", progress=False)
    document = result.document()
    assert isinstance(document["next"], list)
    suggested = [step["command"] for step in document["next"] if "detect a difference of 0.02 nats" in step["reason"]]
    assert len(suggested) == 1
    for seeds, detects in ((0, True), (1, False)):
        words = shlex.split(suggested[0])[2:]
        place = next(at for at, word in enumerate(words) if word.startswith("seeds=["))
        listed = json.loads(words[place].removeprefix("seeds="))
        words[place] = f"seeds={json.dumps(listed[: len(listed) - seeds])}"
        assert main(["plan", *words, "--device", "cpu", "--json"]) == 0
        assert (json.loads(capsys.readouterr().out)["detectable"] <= 0.02) is detects
