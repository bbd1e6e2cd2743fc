"""docs/compare.md: each of its commands, on logs of three arms by four seeds, one killed and one diverged. The logs of
every trainer must give the verdicts of the equal table. Libraries write their own logs where they are installed."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import ablate
from ablate.cli import main
from ablate.wings.compare import log_readers
from tests.ablate.wings.compare.test_budgets import table as sizes

TOUR = Path("docs/compare.md").resolve()
ABOVE = {"base": 0.0, "wide": -0.06, "same": 0.0}
KILLED, DIVERGED = ("wide", 3), ("same", 2)
History = list[tuple[int, float, float]]
"""Step, training loss and validation loss."""


def histories() -> Iterator[tuple[str, int, History]]:
    draw = np.random.default_rng(4)
    for arm, above in ABOVE.items():
        for seed in range(4):
            final = 3.2 + above + draw.normal(0, 0.008)
            rows = [
                (step, final + 1.1 - step / 1000, round(final + 1 - step / 1000, 4)) for step in range(200, 1001, 200)
            ]
            if (arm, seed) == KILLED:
                rows = rows[:3]
            if (arm, seed) == DIVERGED:
                rows[-1] = (1000, math.nan, math.nan)
            yield arm, seed, rows


def trainer(root: Path, name: str, rows: History) -> None:
    callback = pytest.importorskip("transformers").trainer_callback
    (root / name / "checkpoint-1000").mkdir(parents=True)
    log = [{"loss": train, "step": step} for step, train, _ in rows]
    log += [{"eval_loss": value, "step": step} for step, _, value in rows]
    callback.TrainerState(log_history=log).save_to_json(str(root / name / "checkpoint-1000" / "trainer_state.json"))


def lightning(root: Path, name: str, rows: History) -> None:
    folder = root / name / "lightning_logs" / "version_0"
    folder.mkdir(parents=True)
    with (folder / "metrics.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["epoch", "step", "train_loss", "val_loss"])
        for step, train, value in rows:
            writer.writerows([[0, step, train, ""], [0, step, "", value]])


def tensorboard(root: Path, name: str, rows: History) -> None:
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415

    with SummaryWriter(str(root / name)) as writer:
        for step, train, value in rows:
            writer.add_scalar("train/loss", train, step)
            writer.add_scalar("eval/loss", value, step)


def nanogpt(root: Path, name: str, rows: History) -> None:
    lines = [f"step {step}: train loss {train:.4f}, val loss {value:.4f}\n" for step, train, value in rows]
    (root / f"{name}.txt").write_text("iter 0: loss 10.9, time 300.00ms, mfu -100.00%\n" + "".join(lines))


def torchtitan(root: Path, name: str, rows: History) -> None:
    """As its metrics processor prints them, colours included."""
    lines = []
    for step, train, value in rows:
        titan = "[titan] 2026-01-01 00:00:00,000 - root - INFO - "
        rest = "\x1b[36mmemory: 12.10GiB(15.20%)  \x1b[34mtps: 12,345\x1b[39m\n"
        lines += [
            f"{titan}\x1b[31mstep: {step:2}  \x1b[32mloss: {train:7.4f}  \x1b[38;2;180;60;0mgrad_norm:  1.2  {rest}"
        ]
        lines += [f"{titan}\x1b[33mvalidate step: {step:2}  \x1b[32mloss: {value:7.4f}  {rest}"]
    (root / f"{name}.log").write_text("".join(lines))


def megatron(root: Path, name: str, rows: History) -> None:
    lines = []
    for step, train, value in rows:
        lines += [f" iteration {step:8}/    1000 | consumed samples: 64 | elapsed time per iteration (ms): 300.1 |"]
        lines += [f" lm loss: {train:.6E} | loss scale: 1.0 |\n{'-' * 90}\n validation loss at iteration {step} on"]
        lines += [f" validation set | lm loss value: {value:.6E} | lm loss PPL: {math.exp(value):.6E} | \n"]
    (root / f"{name}.log").write_text("".join(lines))


def olmo(root: Path, name: str, rows: History) -> None:
    lines = []
    for step, train, value in rows:
        lines += [f"2026-01-01\tcallbacks:1\tINFO\t[step={step}/1000,epoch=1]\n    train/CE loss={train:.4f}\n"]
        lines += [f"    eval/lm/books-validation/CE loss=9.000\n    eval/lm/c4_en-validation/CE loss={value:.4f}\n"]
    (root / f"{name}.log").write_text("".join(lines))


def wandb(root: Path, name: str, rows: History) -> None:
    """The summary that wandb leaves of each run."""
    (root / name / "files").mkdir(parents=True)
    step, train, value = rows[-1]
    found = {"train/loss": train, "eval/loss": value, "_step": step, "_runtime": 3.2}
    (root / name / "files" / "wandb-summary.json").write_text(json.dumps(found))


def jsonl(root: Path, name: str, rows: History) -> None:
    text = "".join(json.dumps({"step": step, "loss": train, "val_loss": value}) + "\n" for step, train, value in rows)
    (root / f"{name}.jsonl").write_text(text)


WRITERS: dict[str, Callable[[Path, str, History], None]] = {
    each.__name__: each for each in (trainer, lightning, tensorboard, nanogpt, torchtitan, megatron, olmo, wandb, jsonl)
}


def exported(path: Path) -> None:
    """A chart as the pages of Weights & Biases export it."""
    runs = {f"{arm}-s{seed}": {step: value for step, _, value in rows} for arm, seed, rows in histories()}
    bounds = ("", "__MIN", "__MAX")
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["Step", *(f"{name} - eval/loss{bound}" for name in runs for bound in bounds)])
        for step in range(200, 1001, 200):
            cells = [of.get(step, "") for of in runs.values()]
            writer.writerow(
                [step, *("NaN" if isinstance(c, float) and math.isnan(c) else c for c in cells for _ in bounds)]
            )


def of_table() -> pl.DataFrame:
    rows = [(arm, str(seed), step, value) for arm, seed, run in histories() for step, _, value in run]
    return pl.DataFrame(rows, schema=["arm", "seed", "step", "loss"], orient="row")


def commands(kind: str = "") -> list[list[str]]:
    """The tour's commands with this first word of their file."""
    found = [
        shlex.split(line) for line in re.findall(r"^`?(?:\| .* \| `)?(ablate compare [^`\n]+)", TOUR.read_text(), re.M)
    ]
    return [each[1:] for each in found if each[2].startswith(kind)]


@pytest.mark.parametrize("kind", [*WRITERS, "charts.csv"])
def test_logs_give_the_verdicts_of_the_equal_table(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if kind == "charts.csv":
        exported(Path(kind))
    else:
        Path(kind).mkdir()
        for arm, seed, rows in histories():
            WRITERS[kind](Path(kind), f"{arm}-s{seed}", rows)
    (command,) = [each for each in commands(kind) if "--list" not in each]
    assert main([*command, "--baseline", "base", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    wanted = ablate.compare(of_table(), baseline="base").document()
    wanted_rows: Any = wanted["contrasts"]
    by_arm = {row["arm"]: row for row in found["contrasts"]}
    for row in wanted_rows:
        mine = by_arm[row["arm"]]
        assert [mine[name] for name in ("verdict", "paired")] == [row[name] for name in ("verdict", "paired")]
        # event files hold numbers of 32 bits
        assert mine["difference"] == pytest.approx(row["difference"], abs=1e-6)
        assert mine["p"] == pytest.approx(row["p"], rel=1e-3)
    assert by_arm["wide"]["verdict"] == "better"
    notes = {note for note in found["notes"] if "left out" in note or "failed" in note}
    assert notes == {
        "seed 3 of wide is left out: its loss is of step 600 of 1000",
        "counted as failed: seed 2 of same (NaN)",
    }
    assert notes <= set(ablate.compare(of_table()).notes)


@pytest.mark.slow
def test_the_tours_other_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    of_table().filter(step=1000).write_csv("losses.csv")
    sizes().write_csv("sizes.csv")
    sizes(seeds=2).filter(arm="base").write_csv("baseline.csv")
    sizes(seeds=2).filter(arm="wide", size="1.3B").write_csv("candidate.csv")
    Path("ladder").mkdir()
    for row in sizes().iter_rows(named=True):
        record = {"step": 9, "val_loss": row["loss"], "tokens": row["tokens"], "tps": row["tokens_per_second"]}
        Path(f"ladder/{row['arm']}-{row['size']}-s{row['seed']}.jsonl").write_text(json.dumps(record))
    Path("trainer").mkdir()
    for arm, seed, rows in histories():
        trainer(Path("trainer"), f"{arm}-s{seed}", rows)
    said = {}
    told = [each for each in commands() if each[1].split("/")[0] not in WRITERS or "--list" in each]
    for command in (each for each in told if "#" not in each[1]):
        assert main(command) == 0, command
        said[command[1]] = capsys.readouterr().out
    assert "200 to 1000" not in said["trainer/{arm}-s{seed}"]
    assert "600 to 1000" in said["trainer/{arm}-s{seed}"]
    assert "wide: over 4 budgets ×1.2" in said["sizes.csv"]
    assert "wide: over 4 budgets ×1.2" in said["ladder/{arm}-{size}-s{seed}.jsonl"]
    assert "wide: over 1 budget ×1.2" in said["candidate.csv"]
    assert "effective compute" in Path("report.html").read_text()


def test_what_cannot_be_read_is_named_with_what_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_readers, "HAS_WANDB", False)
    (tmp_path / "offline-run-1").mkdir()
    (tmp_path / "offline-run-1" / "run-abc.wandb").write_bytes(b":W&B\xff\x00")
    with pytest.raises(ablate.ArgumentError, match="wandb sync"):
        ablate.compare(f"{tmp_path}/{{arm}}-run-1")
    with pytest.raises(ablate.ArgumentError, match="wandb sync"):
        ablate.compare(f"{tmp_path}/offline-run-1/{{arm}}.wandb")
    (tmp_path / "a.log").write_bytes(b"\x80\x02}q\x00\xff")
    with pytest.raises(ablate.ArgumentError, match="is not text; formats that can be read: JSON, JSON lines, CSV"):
        ablate.compare(f"{tmp_path}/{{arm}}.log")
    exported(tmp_path / "charts.csv")
    with pytest.raises(ablate.ArgumentError, match="exported, name its runs"):
        ablate.compare(tmp_path / "charts.csv")
    with pytest.raises(ablate.ArgumentError, match=r"no run matches .*; it has runs base-s0, base-s1"):
        ablate.compare(f"{tmp_path}/charts.csv#{{arm}}_{{seed}}")


def test_packed_logs_are_read(tmp_path: Path) -> None:
    import gzip  # noqa: PLC0415

    for arm, seed, rows in histories():
        jsonl(tmp_path, f"{arm}-s{seed}", rows)
        plain = tmp_path / f"{arm}-s{seed}.jsonl"
        (tmp_path / f"{arm}-s{seed}.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    packed, plain_found = (ablate.compare(f"{tmp_path}/{{arm}}-s{{seed}}.jsonl{end}") for end in (".gz", ""))
    assert packed.contrasts.equals(plain_found.contrasts)


@pytest.mark.parametrize(
    "line",
    [
        "validate step: 10  loss: 3.5",
        "INFO - validation iter 10: loss 3.5, acc 0.2",
        "eval step=10 loss=3.5 ppl=33.1",
        "Evaluation epoch: 10, loss: 3.5",
    ],
)
def test_a_line_about_validation_has_a_validation_loss(line: str, tmp_path: Path) -> None:
    (tmp_path / "a-0.log").write_text(f"step: 10  loss: 9.9\n{line}\nstep: 10  loss: 9.8\n")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["compare", f"{tmp_path}/{{arm}}-{{seed}}.log", "--list", "--json"]) == 0
    (run,) = json.loads(out.getvalue())
    assert (run["loss"], run["step"]) == (3.5, 10)


def test_marks_in_paths_and_runs_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "try#3").mkdir()
    for arm, seed, rows in histories():
        jsonl(tmp_path / "try#3", f"{arm}-s{seed}", rows)
    assert ablate.compare(f"{tmp_path}/try#3/{{arm}}-s{{seed}}.jsonl").contrasts.height == 2
    (tmp_path / "charts.csv").write_text('"Step","a-s0 - eval/loss","a-s0 - eval/loss"\n1,3.0,3.1\n')
    with pytest.raises(ablate.ArgumentError, match="two columns are called 'a-s0 - eval/loss'"):
        ablate.compare(f"{tmp_path}/charts.csv#{{arm}}-s{{seed}}")
