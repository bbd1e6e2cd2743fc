"""`ablate compare` on the logs of other trainers, written by those trainers' own libraries where they are at hand."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest

import ablate
from ablate.cli import main
from ablate.wings.compare import log_readers, loss_files
from ablate.wings.compare.log_readers import read
from ablate.wings.compare.logs_of_others import read_logs

LOSSES = {("pre", 0): 3.10, ("pre", 1): 3.12, ("pre", 2): 3.11, ("post", 0): 3.30, ("post", 1): 3.33, ("post", 2): 3.31}


def trainer(folder: Path, loss: float) -> None:
    callback = pytest.importorskip("transformers").trainer_callback
    folder.mkdir(parents=True)
    history = [
        {"loss": 9.0, "step": 1},
        {"eval_loss": 5.0, "step": 10},
        {"eval_loss": loss, "step": 20},
        {"train_runtime": 1.0},
    ]
    callback.TrainerState(log_history=history).save_to_json(str(folder / "trainer_state.json"))


def tensorboard(folder: Path, loss: float) -> None:
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415

    with SummaryWriter(str(folder)) as writer:
        for step, value in enumerate([9.0, 5.0, loss]):
            writer.add_scalar("eval/loss", value, step)


def wandb(folder: Path, loss: float) -> None:
    """The summary that wandb leaves of each run, offline ones too."""
    (folder / "files").mkdir(parents=True)
    found = {"eval/loss": loss, "_step": 20, "_wandb": {"runtime": 3}, "done": True}
    (folder / "files" / "wandb-summary.json").write_text(json.dumps(found))


WRITERS = {"trainer": trainer, "tensorboard": tensorboard, "wandb": wandb}


@pytest.mark.parametrize("kind", WRITERS)
def test_folders_of_logs(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    for (arm, seed), loss in LOSSES.items():
        WRITERS[kind](tmp_path / f"{arm}-s{seed}", loss)
    assert main(["compare", f"{tmp_path}/{{arm}}-s{{seed}}", "--baseline", "pre", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (contrast,) = found["contrasts"]
    differences = [LOSSES["post", seed] - LOSSES["pre", seed] for seed in range(3)]
    assert contrast["difference"] == pytest.approx(sum(differences) / 3, abs=1e-6)
    assert (contrast["arm"], contrast["verdict"]) == ("post", "worse")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "{}.txt",
            "step 0: train loss 9.1, val loss 9.2\niter 1: loss 8.0\nstep 20: train loss 2.9, val loss {}\n",
        ),
        ("{}.log", "step:0/20 val_loss:9.0 train_time:0ms\nstep:20/20 val_loss:{} train_time:900ms step_avg:45.00ms\n"),
        ("{}.csv", "step,lr,val_loss\n0,1e-3,9.0\n20,0.0,{}\n30,0.0,\n"),
        ("{}.tsv", "step\tlr\tval_loss\n0\t1e-3\t9.0\n20\t0.0\t{}\n30\t0.0\t\n"),
        ("{}.jsonl", '{{"step": 0, "val_loss": 9.0}}\n{{"step": 20, "val_loss": {}}}\n\n{{"lr": NaN}}\n'),
        ("{}.json", '[{{"step": 0, "val_loss": 9.0}}, {{"step": 20, "val_loss": {}}}]'),
    ],
    ids=["nanogpt", "speedrun", "csv", "tsv", "jsonl", "json"],
)
def test_text_and_tables(tmp_path: Path, name: str, text: str) -> None:
    for (arm, seed), loss in LOSSES.items():
        (tmp_path / name.format(f"{arm}_{seed}")).write_text(text.format(loss))
    pattern = str(tmp_path / name.format("{arm}_{seed}"))
    found = {(row["arm"], int(row["seed"])): row["loss"] for row in read_logs(pattern).iter_rows(named=True)}
    assert found == LOSSES


def test_a_counter_that_starts_again_is_another_step(tmp_path: Path) -> None:
    """Bars of trainers count the batches of an epoch."""
    epochs = [
        "Epoch 1/2\n10/10 [====] - loss: 3.2 - val_loss: 3.1",
        "Epoch 2/2\n10/10 [====] - loss: 3.0 - val_loss: 2.9",
    ]
    (tmp_path / "a.log").write_text("\n".join(epochs))
    assert read_logs(f"{tmp_path}/{{arm}}.log")["loss"].to_list() == [2.9]
    bars = "step 10: val_loss 3.1\nstep 5: loss 3.0\nstep 10: val_loss 2.9\n"
    (tmp_path / "a.log").write_text(bars)
    assert read_logs(f"{tmp_path}/{{arm}}.log")["loss"].to_list() == [2.9]
    (tmp_path / "a.log").write_text(bars.replace("5", "10"))
    with pytest.raises(ablate.ArgumentError, match="two values of val_loss at step 10"):
        read_logs(f"{tmp_path}/{{arm}}.log")


def test_two_runs_that_would_be_one_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chart.csv").write_text("Step,pre-1 - eval/loss,pre-2 - eval/loss\n20,3.0,3.1\n")
    with pytest.raises(ablate.ArgumentError, match=r"pre-1 and pre-2 are both seed 0 of pre: add \{seed\}"):
        read_logs(f"{tmp_path}/chart.csv#{{arm}}-*")
    for number in (1, 2, 3):
        (tmp_path / f"offline-run-2026010{number}-x").mkdir()
        (tmp_path / f"offline-run-2026010{number}-x" / f"run-{number}.wandb").touch()

    def named(path: Path) -> tuple[str, str, log_readers.Log]:
        number = int(path.stem[-1])
        return f"id{min(number, last)}", "pre", [{"_step": 10 * number, "eval/loss": 4.0 - number}]

    monkeypatch.setattr(log_readers, "wandb_run", named)
    last = 1  # one run that was resumed twice
    assert read_logs(f"{tmp_path}#{{arm}}").select("loss", "step").rows() == [(1.0, 30.0)]
    last = 3
    with pytest.raises(ablate.ArgumentError, match="the runs id1 and id2 are both named pre"):
        read_logs(f"{tmp_path}#{{arm}}")


def test_a_metric_can_be_named_and_a_star_stands_for_the_rest(tmp_path: Path) -> None:
    for (arm, seed), loss in LOSSES.items():
        (tmp_path / f"2026_{arm}_{seed}").mkdir()
        (tmp_path / f"2026_{arm}_{seed}" / "log.txt").write_text(f"step 3: c4 bpb {loss}, val loss 1.0")
    pattern = f"{tmp_path}/*_{{arm}}_{{seed}}/log.txt"
    assert set(read_logs(pattern, "c4 bpb")["loss"]) == set(LOSSES.values())
    assert set(read_logs(pattern)["loss"]) == {1.0}
    found = ablate.compare(pattern, baseline="pre", metric="c4 bpb")
    assert found.contrasts["verdict"].to_list() == ["worse"]


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ablate.ArgumentError, match="no file or folder matches"):
        read_logs(f"{tmp_path}/{{arm}}.txt")
    (tmp_path / "pre.txt").write_text("step 1: train loss 2.0")
    with pytest.raises(ablate.ArgumentError, match=r"has no trian loss \(did you mean 'train loss'\?\)"):
        read_logs(f"{tmp_path}/{{arm}}.txt", "trian loss")
    with pytest.raises(ablate.ArgumentError) as error:
        read_logs(f"{tmp_path}/{{arm}}.txt")
    known = "it has: step, train loss; to judge another value, give its name as the metric"
    said = f"has no validation loss, such as eval_loss or val/loss; {known}"
    assert str(error.value) == f"losses {tmp_path}/pre.txt: {said}"
    (tmp_path / "pre.jsonl").write_text("{}")
    with pytest.raises(ablate.ArgumentError, match=r"val/loss; it has no named numbers$"):
        read_logs(f"{tmp_path}/{{arm}}.jsonl")
    (tmp_path / "words.json").write_text('["a"]')
    with pytest.raises(ablate.ArgumentError, match="cannot be read: expected an object of numbers, or a list of them"):
        read_logs(f"{tmp_path}/wo{{arm}}.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ablate.ArgumentError, match="cannot be read"):
        read_logs(f"{tmp_path}/bro{{arm}}.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ablate.ArgumentError, match=r"the folder has none of trainer_state\.json"):
        read_logs(f"{tmp_path}/{{arm}}mpty")


def test_a_run_that_diverged_ends_early_and_has_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is no survivor that is missing: a verdict is as hard to get as it is of a table with the same failure."""
    for (arm, seed), loss in LOSSES.items():
        last = "45,nan" if (arm, seed) == ("post", 2) else f"{400 - seed},{loss}"
        (tmp_path / f"{arm}-s{seed}.csv").write_text(f"step,val_loss\n0,9.0\n{last}\n")
    assert main(["compare", f"{tmp_path}/{{arm}}-s{{seed}}.csv", "--baseline", "pre", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(arm["arm"], arm["seeds"], arm["failed"]) for arm in found["arms"]] == [("post", 2, 1), ("pre", 3, 0)]
    assert not any("left out" in note for note in found["notes"])


def test_a_log_that_ends_early_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its last loss is no final one."""
    for (arm, seed), loss in LOSSES.items():
        rows = ["step,val_loss", "0,9.0", *([] if (arm, seed) == ("post", 2) else [f"400,{loss}"])]
        (tmp_path / f"{arm}-s{seed}.csv").write_text("\n".join(rows))
    assert main(["compare", f"{tmp_path}/{{arm}}-s{{seed}}.csv", "--baseline", "pre", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["notes"][0] == "seed 2 of post is left out: its loss is of step 0 of 400"
    differences = [LOSSES["post", seed] - LOSSES["pre", seed] for seed in (0, 1)]
    assert found["contrasts"][0]["difference"] == pytest.approx(sum(differences) / 2)


def test_a_run_that_was_killed_before_its_first_evaluation_is_left_out(tmp_path: Path) -> None:
    for arm, seed in LOSSES:
        written(tmp_path, {f"{arm}-{seed}.log": "step 1: loss 9.0\nstep 400: val loss 3.1\n"})
    for last in ("", "step 1: loss 9.0\n"):
        written(tmp_path, {"post-2.log": last})
        assert ablate.compare(f"{tmp_path}/{{arm}}-{{seed}}.log").notes[0] == (
            "seed 2 of post is left out: its log has no validation loss"
        )
    written(tmp_path, dict.fromkeys(("post-0.log", "post-1.log"), "step 1: loss 9.0\n"))
    with pytest.raises(ablate.ArgumentError, match=r"post-0\.log: has no validation loss"):
        ablate.compare(f"{tmp_path}/{{arm}}-{{seed}}.log")


@pytest.mark.parametrize(
    ("name", "remedy"), [("*_{arm}-{seed}", "narrow the pattern to one"), ("*_{arm}-*", "add {seed}")]
)
def test_two_logs_of_one_run_are_refused(name: str, remedy: str, tmp_path: Path) -> None:
    for arm, seed in LOSSES:
        for day in ("mon", "tue"):
            (tmp_path / f"{day}_{arm}-{seed}.txt").write_text("val loss 3.0")
    with pytest.raises(ablate.ArgumentError) as error:
        ablate.compare(f"{tmp_path}/{name}.txt")
    assert "are both seed 0 of p" in str(error.value) and remedy in str(error.value)


def written(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


@pytest.mark.parametrize("kind", ["json", "csv", "txt"])
def test_a_loss_is_of_the_step_at_which_it_was_logged(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Training went on after the last evaluation of one run: its loss is no final one, though its log is as long."""
    for (arm, seed), loss in LOSSES.items():
        evaluated = {500: 4.0} if (arm, seed) == ("post", 2) else {500: 4.0, 1000: loss}
        steps = range(100, 1001, 100)
        text = {
            "json": json.dumps(
                [{"step": k, **({"eval_loss": evaluated[k]} if k in evaluated else {"loss": 3.0})} for k in steps]
            ),
            "csv": "\n".join(["step,loss,val_loss", *(f"{k},3.0,{evaluated.get(k, '')}" for k in steps)]),
            "txt": "\n".join(
                f"step {k}: " + (f"val loss {evaluated[k]}" if k in evaluated else "loss 3.0") for k in steps
            ),
        }[kind]
        (tmp_path / f"{arm}-s{seed}.{kind}").write_text(text)
    assert main(["compare", f"{tmp_path}/{{arm}}-s{{seed}}.{kind}", "--baseline", "pre", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["notes"][0] == "seed 2 of post is left out: its loss is of step 500 of 1000"


LAST = {
    "null.jsonl": '{"step": 5, "eval_loss": 3.1}\n{"step": 9, "eval_loss": null}\n',
    "capitals.txt": "step 5: train loss 3.0, val loss 3.1\nstep 9: train loss NaN, val loss NaN\n",
    "tensor.txt": "step 5 val_loss: 3.1\nstep 9 val_loss: tensor(nan, device='cuda:0')\n",
    "na.csv": "step,val_loss\n5,3.1\n9,N/A\n",
    "angle.txt": "step 5 val_loss 3.1\nstep 9 val_loss <nan>\n",
    "query.txt": "step 5 val_loss 3.1\nstep 9 val_loss ?\n",
    "inf.json": '[{"step": 5, "eval_loss": 3.1}, {"step": 9, "eval_loss": Infinity}]',
}


@pytest.mark.parametrize("name", LAST)
def test_a_last_loss_that_is_no_number_is_a_failed_run(name: str, tmp_path: Path) -> None:
    """The last number before it is no loss of the run."""
    written(tmp_path, {name: LAST[name]})
    suffix = name.partition(".")[2]
    ((_, _, loss, step, _, _),) = read_logs(f"{tmp_path}/{{arm}}.{suffix}").rows()
    assert not math.isfinite(loss) and step == 9


READ = {
    "thousands.csv": ('step,val_loss\n500,3.1\n"1,000","1,234.5"\n', 1234.5, 1000),
    "semicolons.csv": ("step;val_loss\n500;4,1\n", 4.1, 500),
    "tabs.csv": ("step\tval_loss\n5\t3.1\n", 3.1, 5),
    "blanks.csv": ("step, val_loss\n5, 3.1\n", 3.1, 5),
    "comments.csv": ("# run 1\nstep,val_loss\n5,3.1\n", 3.1, 5),
    "bom.json": (b'\xef\xbb\xbf[{"step": 1, "eval_loss": 3.0}]', 3.0, 1),
    "wide.log": ("step 10: val loss 3.1\n".encode("utf-16"), 3.1, 10),
    "cut.jsonl": ('{"step": 1, "eval_loss": 3.2}\n{"step": 2, "eva', 3.2, 1),
    "resumed.jsonl": ('{"step": 1, "eval_loss": 3.3}\n{"step": 2, "ev\n{"step": 2, "eval_loss": 3.2}\n', 3.2, 2),
    "padded.jsonl": (
        '{"step": 1, "loss": 4, "eval_loss": null}\n{"step": 2, "eval_loss": 3.2}\n{"step": 3, "eval_loss": null}\n',
        3.2,
        2,
    ),
    "bars.csv": ("step|val_loss\n5|3.1\n", 3.1, 5),
    "latin.log": ("Prüfung: step 5 val_loss 3.1\n".encode("cp1252"), 3.1, 5),
    "arrow.log": ("step 5 | val_loss -> 3.1\n", 3.1, 5),
    "numpy.log": ("{'val_loss': np.float64(3.1), 'step': 5}\n", 3.1, 5),
    "header.log": ("INFO [step=1000/1000,epoch=0]\n    val_loss=2.5\n    speed (tokens/s)=1,234\n", 2.5, 1000),
}


@pytest.mark.parametrize("name", READ)
def test_odd_ways_of_writing_are_read(name: str, tmp_path: Path) -> None:
    content, loss, step = READ[name]
    written(tmp_path, {name: content})
    arm, suffix = name.split(".")
    (row,) = read_logs(f"{tmp_path}/{{arm}}.{suffix}").rows(named=True)
    assert [row[each] for each in ("arm", "seed", "loss", "step")] == [arm, "0", loss, step]


REFUSED = {
    "pre.csv": ("step,val_loss\n5,3.1\n9,3_51\n", "the last val_loss is '3_51', which is no number"),
    "comma.log": ("step 5: val loss 3,14\n", "the last val loss is '3,14', which is no number"),
    "word.log": ("step 5 val_loss 3.1\nstep 9 val_loss: diverged\n", "the last val_loss is 'diverged', which is no"),
    "unit.log": ("step 5 val_loss 3.2nats\n", "has no validation loss"),
    "train.log": ("step 5: loss 3.1 | eval: acc 0.3\n[train] step 9 | loss 3.0\n", "has no validation loss"),
    "line.log": ("step 5 val_loss 3.1 val_loss 2.1\n", "has two values of val_loss at step 5, 2.1 and 3.1: remove one"),
    "sets.jsonl": (
        '{"step": 5, "val_loss": 3}\n{"step": 5, "val_loss": 2}\n',
        "two values of val_loss at step 5, 3 and 2",
    ),
    "case.csv": ("step,val_loss,Val_Loss\n5,3,2\n", "two values of val_loss at step 5, 3 and 2"),
    "wide.log": ("step 5 val_loss 3.1\n".encode("utf-16-le"), "is not text; formats that can be read: JSON"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_loss_that_cannot_be_read_is_said(name: str, tmp_path: Path) -> None:
    content, said = REFUSED[name]
    written(tmp_path, {name: content})
    with pytest.raises(ablate.ArgumentError, match=said):
        read_logs(f"{tmp_path}/{{arm}}.{name.split('.')[1]}")


def test_names_with_punctuation_are_whole(tmp_path: Path) -> None:
    """As OLMo prints them: the sets of two evaluations differ before a hyphen."""
    lines = "INFO [step=9/9]\n  eval/books-validation/Loss={}\n  eval/web-validation/Loss=2.0\n  eval/web.v2(%)=1,234\n"
    written(tmp_path, {"pre.log": lines.format(3.0), "post.log": lines.format(9.0)})
    assert read_logs(f"{tmp_path}/{{arm}}.log", "eval/books-validation/Loss")["loss"].to_list() == [9.0, 3.0]
    assert read_logs(f"{tmp_path}/{{arm}}.log", "eval/web.v2(%)")["loss"].to_list() == [1234.0, 1234.0]
    with pytest.raises(ablate.ArgumentError, match="has no validation/Loss"):
        read_logs(f"{tmp_path}/{{arm}}.log", "validation/Loss")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("{arm}-s{seed}.log", ["base-s0", "no-skip-s0", "no-sink-s1"]),
        ("{arm}-{seed}.log", ["rope-base-0", "rope-ntk-0", "mu-lr-3"]),
        ("./{arm}_{seed}.log", ["a_b_1", "c_2"]),
    ],
)
def test_an_arm_has_as_long_a_name_as_it_can(
    pattern: str, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, {f"{name}.log": "step 1 val loss 3.0" for name in names})
    found = [(row["arm"], row["seed"]) for row in read_logs(pattern).iter_rows(named=True)]
    expected = [tuple(re.split(r"[-_]s?(?=\d+$)", name)) for name in names]
    assert sorted(found) == sorted(expected)


def test_arms_that_end_at_unlike_steps_are_named(tmp_path: Path) -> None:
    """All runs of one arm were killed, or its losses became empty cells as it diverged: none of them is short."""
    for arm, last in {"a": 1000, "b": 300}.items():
        for seed in range(3):
            rows = "\n".join(f"{k},{9 - k / 500}" for k in range(100, last + 1, 100))
            written(tmp_path, {f"{arm}-{seed}.csv": f"step,val_loss\n{rows}\n"})
    notes = ablate.compare(f"{tmp_path}/{{arm}}-{{seed}}.csv").notes
    assert "the arms' losses are of different steps: 1000 (a), 300 (b)" in notes
    for seed in range(3):
        written(tmp_path, {f"c_{seed}.log": "val loss 3.1", f"d_{seed}.log": "val loss 3.2"})
    notes = ablate.compare(f"{tmp_path}/{{arm}}_{{seed}}.log").notes
    assert "runs without a step, so that none is known to have ended: 6" in notes


LINES = {
    "step 10: best val loss 3.2, val loss 3.5, time per step 0.3": (3.5, 10),
    "Step [200/1000], train_loss: 2.0, val_loss: 3.5": (3.5, 200),
    "INFO global step 200: val loss 3.5": (3.5, 200),
    "step 1000 val_loss 3.5 (best: 3.3, step: 800)": (3.5, 1000),
    "\x1b[31mstep: \x1b[32m 10  \x1b[36mval_loss: \x1b[0m 3.5000  \x1b[34mmemory:  5.00GiB(6.3%)\x1b[39m tps: 1,234": (
        3.5,
        10,
    ),
    "validation loss at step 20: 3.5": (3.5, 20),
    "INFO val loss after step 20 = 3.5, lr 1e-3": (3.5, 20),
    "{'eval_loss': 3.5, 'step': 20}": (3.5, 20),
    "{'eval_loss': '3.5', 'step': '20'}": (3.5, 20),  # as transformers 5 prints it
    "trainer INFO validate step: 20  loss: 3.5": (3.5, 20),
    "eval step 20: val_loss 3.5": (3.5, 20),
    "validation step 20: train loss 2.0, val loss 3.5": (3.5, 20),
    "eval_step=20 loss=3.5": (3.5, 20),
    "eval metrics after step: 20, loss=3.5, total_weights=9": (3.5, 20),
    "[eval] step 20: loss 3.5": (3.5, 20),
    "step 20 train: loss 2.0 eval: loss 3.5": (3.5, 20),
    "step=20 split=valid loss=3.5": (3.5, 20),
    "2026-01-05 | INFO | valid | step 020 | valid on 'valid' subset | loss 3.5 | ppl 33": (3.5, 20),
    "eval loss at step 20 is 3.5": (3.5, 20),
    "validation loss: 3.5 at step 20": (3.5, 20),
    "step 20 | val loss 3.5 | best val loss at step 3: 3.1, loss 2.0": (3.5, 20),
    "step 20 valid/loss=3.5 best/loss=3.1": (3.5, 20),
    "step: 20 | Validation loss: 3.5": (3.5, 20),
    "Epoch 3 Val Loss 3.5": (3.5, 1),
    "step 20: val_loss 3.5.": (3.5, 20),
    "step 20: val_loss is NaN, stopping": (math.nan, 20),
    "step 20 val_loss -1.#IND": (math.nan, 20),
    "step 20 val_loss ******": (math.nan, 20),
    "12:30:01 v1.2.3 step 7 | val_loss=1.5e-3 | lr 1e-3": (1.5e-3, 7),
}


@pytest.mark.parametrize("line", LINES)
def test_lines_as_trainers_print_them(line: str, tmp_path: Path) -> None:
    other = "global step 1\n" if "global" in line else "step 1\n"
    written(tmp_path, {"pre.log": f"{other}{line}\n"})
    (row,) = read_logs(f"{tmp_path}/{{arm}}.log").rows(named=True)
    assert (row["loss"], row["step"]) == pytest.approx(LINES[line], nan_ok=True)


COUNTED = {
    "[{}/1000] train_loss: 3.0, val_loss: 3.1": "step",
    "epoch 1:  50%|███  | {}/1000 [00:10<00:10, 5.0it/s, val_loss=3.1]\r": "step",
    "2026/01/05 12:00 [1/8] step {}: val loss 3.1": "step",
    "Epoch [{}/1000], Step [100/100], Val Loss: 3.1": "epoch",
    "Epoch {} Val Loss 3.1": "epoch",
    "{{'eval_loss': '3.1', 'epoch': '{}'}}": "epoch",
}


@pytest.mark.parametrize("line", COUNTED)
def test_whatever_counts_tells_that_a_run_was_killed(line: str, tmp_path: Path) -> None:
    for arm, seed, last in (("a", 0, 1000), ("a", 1, 600), ("b", 0, 1000), ("b", 1, 1000)):
        lines = (line.format(count) for count in range(200, last + 1, 200))
        written(tmp_path, {f"{arm}-{seed}.log": "\n".join(lines)})
    notes = ablate.compare(f"{tmp_path}/{{arm}}-{{seed}}.log").notes
    assert f"seed 1 of a is left out: its loss is of {COUNTED[line]} 600 of 1000" in notes
    assert not any("without a step" in note or "different" in note for note in notes)


def test_a_long_line_takes_no_long_time(tmp_path: Path) -> None:
    written(tmp_path, {"pre.log": "word " * 20_000 + "x" * 100_000 + "\nstep 3 val_loss 3.5\n"})
    start = time.process_time()
    assert read_logs(f"{tmp_path}/{{arm}}.log").drop("file", "metric").rows() == [("pre", "0", 3.5, 3.0)]
    assert time.process_time() - start < 5


def test_budgets_are_read_as_they_are_printed(tmp_path: Path) -> None:
    written(tmp_path, {"a-19M.log": "tokens: 0.38B | tok/s=1,200\nstep 1 val/loss 3.5\n", "a-1B.log": "val_loss 3.1"})
    found = read_logs(f"{tmp_path}/{{arm}}-{{size}}.log")
    assert found.select("size", "loss", "tokens", "tokens_per_second", "flops").rows() == [
        ("19M", 3.5, 0.38e9, 1200.0, None),
        ("1B", 3.1, None, None, None),
    ]


def test_odd_files_are_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe that nobody writes, a packed file that a kill cut or a bit changed, and one that unpacks to far more."""
    os.mkfifo(tmp_path / "pipe-0.log")
    whole = gzip.compress(b"step 1: val loss 3.0\n" * 99)
    written(tmp_path, {"cut-0.log.gz": whole[:-9], "bit-0.log.gz": whole[:20] + b"\xff" + whole[21:]})
    written(
        tmp_path,
        {
            "bomb-0.log.gz": gzip.compress(bytes(9999)),
            "events.out.tfevents.1": b"\x09" + bytes(7) + b"crc." + b"\xff" * 13,
        },
    )
    monkeypatch.setattr(loss_files, "UNPACKED_BYTES", 5000)
    for name, said in {
        "pipe": "not a regular file",
        "cut": "ended before",
        "bit": "Error",
        "bomb": "more than",
    }.items():
        with pytest.raises(ablate.ArgumentError, match=f"{name}-0.*cannot be read: .*{said}"):
            read_logs(f"{tmp_path}/{name[:-1]}{{arm}}-0.log*")
    with pytest.raises(ablate.ArgumentError, match="is damaged at byte 0"):
        read_logs(f"{tmp_path}/events.out.tfevents.{{arm}}")


def test_event_files_are_read_as_tensorboard_reads_them(tmp_path: Path) -> None:
    """Numbers as values and as tensors, beside text and histograms; a record that a kill cut is left out."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator").EventAccumulator
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415

    with SummaryWriter(str(tmp_path)) as writer:
        for step in range(3):
            writer.add_scalar("eval/loss", 3.1 - step, step)
            writer.add_scalar("new/loss", 2.1 - step, step, new_style=True)
            writer.add_scalar("exact/loss", 0.1 + step, step, new_style=True, double_precision=True)
            writer.add_histogram("weights", np.arange(9.0), step)
            writer.add_text("notes", "val loss 9.0", step)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-3])
    reference = accumulator(str(path)).Reload()
    tags = reference.Tags()
    names = [*tags["scalars"], "exact/loss"]
    wanted = {name: [(each.step, each.value) for each in reference.Scalars(name)] for name in tags["scalars"]}
    found = {name: [(each["step"], each[name]) for each in read(path) if name in each] for name in names}
    assert {name: found[name] for name in wanted} == wanted
    assert {len(found[name]) for name in names} == {3}


def test_any_changed_byte_of_an_event_file_is_noticed(tmp_path: Path) -> None:
    """In a length, too, which would pass for the end of a log that a kill cut."""
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415

    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("eval/loss", 3.1, 0)
        writer.add_scalar("eval/loss", 2.1, 1)
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 64]) + content[place + 1 :])
        with pytest.raises(ValueError, match="is damaged at byte"):
            read(path)


@pytest.mark.parametrize("pattern", ["{arm}**.log", "{arm}/**x"])
def test_a_pattern_that_is_none_is_one_line(pattern: str, tmp_path: Path) -> None:
    with pytest.raises(ablate.ArgumentError, match=r"no pattern|no file or folder matches"):
        read_logs(f"{tmp_path}/{pattern}")


@pytest.mark.parametrize(
    "pattern",
    ["{arm}-s{seed}", "{arm}-s{seed}/checkpoint-*/trainer_state.json", "lightning/{arm}-s{seed}", "deep/{arm}-s{seed}"],
)
def test_the_last_of_several_checkpoints_or_versions_is_the_run(pattern: str, tmp_path: Path) -> None:
    for run, last in {"pre-s0": 1000, "pre-s1": 1040}.items():
        for step in (500, last):
            history = json.dumps({"log_history": [{"step": step, "eval_loss": step / 1000}]})
            written(tmp_path, {f"{run}/checkpoint-{step}/trainer_state.json": history})
        for version in (9, 10):
            text = f"step,val_loss\n{last if version == 10 else 1},{last / 1000}\n"
            written(tmp_path, {f"lightning/{run}/version_{version}/metrics.csv": text})
            written(tmp_path, {f"deep/{run}/lightning_logs/version_{version}/metrics.csv": text})
    assert read_logs(f"{tmp_path}/{pattern}").drop("file", "metric").rows() == [
        ("pre", "0", 1.0, 1000.0),
        ("pre", "1", 1.04, 1040.0),
    ]


def test_logs_of_two_kinds_in_a_folder_are_refused(tmp_path: Path) -> None:
    written(tmp_path, dict.fromkeys(("a-0/train/metrics.csv", "a-0/valid/metrics.csv"), "step,val_loss\n1,3.0\n"))
    with pytest.raises(ablate.ArgumentError, match=r"has both .*train/metrics\.csv and .*valid/metrics\.csv: let the"):
        read_logs(f"{tmp_path}/{{arm}}-{{seed}}")
