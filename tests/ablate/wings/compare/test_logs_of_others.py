"""`ablate compare` on the logs of other trainers, written by those trainers' own libraries where they are at hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ablate
from ablate.cli import main
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
    said = f"has no eval_loss, eval/loss, val_loss or val loss; {known}"
    assert str(error.value) == f"losses {tmp_path}/pre.txt: {said}"
    (tmp_path / "pre.jsonl").write_text("{}")
    with pytest.raises(ablate.ArgumentError, match=r"val loss; it has no named numbers$"):
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
    assert found["notes"][0] == "seed 2 of post is left out: its log ends at step 0 of 400"
    differences = [LOSSES["post", seed] - LOSSES["pre", seed] for seed in (0, 1)]
    assert found["contrasts"][0]["difference"] == pytest.approx(sum(differences) / 2)


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
