"""`ablate` alone, `ablate status` and `ablate completion`; studies by name; readers that stop early."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ablate
from ablate.api.named import named_folder
from ablate.cli import COMMANDS, main
from ablate.study.written import shipped
from ablate.wings.browse.status import StudyState, states
from store import Store, StoreError

ROOT = Path(__file__).parent.parent.parent


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def test_ablate_alone_says_what_can_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    named = [line.split()[1] for line in printed(capsys).splitlines() if line.startswith("  ablate ")]
    assert named and set(named) <= set(COMMANDS)
    assert not (tmp_path / "runs").exists()


def test_status_counts_runs_that_ended_and_shows_those_that_run(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Store(shutil.copytree(trained, tmp_path / "runs"))
    (before,) = json.loads(printed(capsys, "status", "--store", str(copy.root), "--json"))["studies"]
    assert before["ended"] == before["runs"] == ablate.open(trained).studies["ended"][0]
    assert before["running"] == []
    digest = copy.runs()[0]
    (copy.run_dir(digest) / "result.json").unlink()
    with copy.claim(digest):
        (now,) = json.loads(printed(capsys, "status", "--store", str(copy.root), "--json"))["studies"]
        assert [run["digest"] for run in now["running"]] == [digest]
        assert digest in printed(capsys, "status", "--store", str(copy.root))
    (after,) = json.loads(printed(capsys, "status", "--store", str(copy.root), "--json"))["studies"]
    assert (after["ended"], after["running"]) == (before["ended"] - 1, [])


def test_status_shows_runs_of_a_study_that_is_still_tuning(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Store(shutil.copytree(trained, tmp_path / "runs"))
    shutil.rmtree(copy.root / "studies")
    first, other = copy.runs()[:2]
    for digest in (first, other):
        (copy.run_dir(digest) / "result.json").unlink()
    run = copy.read_run(first)
    assert run is not None
    copy.write_run(run.model_copy(update={"reads": "tuning"}))
    with copy.claim(first):
        found = json.loads(printed(capsys, "status", "--store", str(copy.root), "--json"))
        assert found["studies"] == []
        assert [(each["digest"], each["arm"], each["steps"]) for each in found["elsewhere"]] == [
            (first, "tuning", run.steps)
        ]
        assert f"tuning, seed {run.seed}" in printed(capsys, "status", "--store", str(copy.root))
    assert "has no studies yet" in printed(capsys, "status", "--store", str(copy.root))


def test_a_study_that_tunes_is_listed_with_its_round(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As another process sees it, whenever a line is printed; once its arms are planned, as any other."""
    shutil.copytree(study.parent, tmp_path / "study")
    path, store, seen, said = tmp_path / "study/rates.yaml", Store(tmp_path / "runs"), list[StudyState](), set[str]()
    listed, asked = list[str](), set[tuple[str, str, str]]()
    tune = "tune: {space: {train.lr: [1e-3, 1e-2]}, fraction: 1, seeds: 1}"
    path.write_text(study.read_text().replace("tune: off", tune))

    def look(_: str) -> None:
        seen.extend(states(store))
        if store.root.exists() and not store.studies():
            listed.append(printed(capsys, "list", "--store", str(store.root)))
            rows = json.loads(printed(capsys, "list", "norms", "--store", str(store.root), "--json"))["stored"]
            asked.update((row["name"], row["question"], row["answer"]) for row in rows)
            with pytest.raises(StoreError) as refused:
                named_folder("rates", None, store.root)
            said.add(str(refused.value))

    ablate.run(path, store=store.root, engine="inprocess", report=False, progress=look)
    (arms,) = {len(document.arms) for document in store.study_documents()}
    rounds = [each for each in seen if each.stage]
    first = [each.ended for each in rounds if each.stage == rounds[0].stage]
    assert (rounds[0].name, rounds[0].runs) == ("rates", 2 * arms)
    assert first == sorted(first) and {1, 2 * arms - 1} <= set(first)
    assert any(rounds[0].stage in out and f"1/{rounds[0].runs}" in out for out in listed)
    assert asked == {("rates", "Does the placement of norms matter?", "")}
    command = f"`ablate status --store {store.root}`"
    assert f"rates: it is in {rounds[0].stage}, in {store.root}/: {command} shows how far" in said
    (after,) = states(store)
    assert (after.stage, after.ended) == ("", after.runs)
    assert rounds[0].stage not in printed(capsys, "list", "--store", str(store.root))
    assert not store.study("rates", after.scale).tuning_path.exists()


def test_a_report_takes_a_study_by_name_file_or_folder(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (name,), (scale,) = (ablate.open(trained).studies[column] for column in ("name", "scale"))
    of_folder = printed(capsys, "report", str(trained / "studies" / f"{name}-{scale}"))
    for study in (name, f"{name}.yaml", f"{name}-{scale}"):
        assert printed(capsys, "report", study, "--store", str(trained)) == of_folder
    of_store = printed(capsys, "report", str(trained))
    assert main(["report", "--store", str(trained / "none")]) == 2
    assert "none/ yet: `ablate run STUDY` creates one" in capsys.readouterr().err
    assert of_store != of_folder and printed(capsys, "report", "--store", str(trained)) == of_store
    assert main(["report", name, "--scale", "other", "--store", str(trained)]) == 2
    assert f"was not run at scale 'other' in {trained}/, only at {scale}" in capsys.readouterr().err
    assert main(["report", name[:-1], "--store", str(trained)]) == 2
    assert f"did you mean '{name}'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["pl"], "plan"),
        (["plan", ""], "norm_placement"),
        (["plan", "x", "--sc"], "--scale"),
        (["plan", "x", "--scale", ""], "cpu-long"),
        (["run", "x", "--device", ""], "cuda"),
        (["zoo", ""], "llama3"),
    ],
)
def test_words_are_completed(line: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert expected in printed(capsys, "completion", "words", *line).splitlines()


def test_bash_completes_a_study() -> None:
    script = f"""
        ablate() {{ {sys.executable} -m ablate "$@"; }}
        eval "$(ablate completion bash)"
        COMP_WORDS=(ablate plan norm_p); COMP_CWORD=2
        _ablate ablate norm_p plan; echo "${{COMPREPLY[@]}}" """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == [name for name in shipped() if name.startswith("norm_p")]


OFTEN, SELDOM = ("", "list"), ("zoo llama3", "find cache", "--help", "status", "claims norm", "zoo", "plan --help")


@pytest.mark.parametrize("command", [*OFTEN, *(pytest.param(each, marks=pytest.mark.slow) for each in SELDOM)])
def test_a_reader_that_left_gets_no_message(command: str, tmp_path: Path) -> None:
    """The reader has ended before anything is written."""
    line = f"{sys.executable} -m ablate {command} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", f"cd {tmp_path}; sleep 0.01; PYTHONPATH={ROOT} {line}"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode in (0, 141), done.stderr) == (True, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["--help", "run --help", "list"])
def test_what_cannot_be_written_is_an_error(command: str, unbuffered: str) -> None:
    """Output that a buffer still holds as the command ends is not written either."""
    line = f"PYTHONUNBUFFERED={unbuffered} {sys.executable} -m ablate {command} > /dev/full"
    done = subprocess.run(["bash", "-c", line], check=False, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (2, "ablate: [Errno 28] No space left on device\n")
