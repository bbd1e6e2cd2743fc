"""Logs that trainers wrote while they ran, of three arms by four seeds, one killed and one diverged: the verdicts, and
what is left out, are those of the equal table."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from torch import nn

import ablate
from tests.ablate.wings.compare.test_tour import History, histories

LAST = 5
Write = Callable[[Path, History], None]


def rows_of(run: History) -> History:
    """Every step an evaluation: 1 to 5."""
    return [(step // 200, train, value) for step, train, value in run]


def trainer(folder: Path, rows: History) -> None:
    transformers = pytest.importorskip("transformers")

    class Killed(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_save(self, _: Any, state: Any, *rest: Any, **more: Any) -> None:
            if state.global_step == len(rows) < LAST:
                raise KeyboardInterrupt

    class Known(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            _, train, value = rows[max(running.state.global_step - (not self.training), 0)]
            return {"loss": self.weight.sum() + (train if self.training else value), "logits": labels}

    every: dict[str, Any] = {f"{what}_strategy": "steps" for what in ("eval", "save", "logging")}
    every |= {f"{what}_steps": 1 for what in ("eval", "save", "logging", "max")}
    settings = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "learning_rate": 0.0}
    args = transformers.TrainingArguments(str(folder), **{**every, "max_steps": LAST, **settings})
    data = [{"labels": 0.0}] * 8
    running = transformers.Trainer(Known(), args, train_dataset=data, eval_dataset=data, callbacks=[Killed()])
    try:
        running.train()
        running.save_state()
    except KeyboardInterrupt:
        assert not (folder / "trainer_state.json").exists()


def lightning(folder: Path, rows: History) -> None:
    pytest.importorskip("lightning")
    from lightning.pytorch.loggers import CSVLogger  # noqa: PLC0415

    run_lightning(rows, CSVLogger(folder))


def tensorboard(folder: Path, rows: History) -> None:
    pytest.importorskip("lightning")
    pytest.importorskip("tensorboard")
    from lightning.pytorch.loggers import TensorBoardLogger  # noqa: PLC0415

    run_lightning(rows, TensorBoardLogger(folder))


def run_lightning(rows: History, logger: Any) -> None:
    import lightning  # noqa: PLC0415

    class Known(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(1, 1)

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            self.log("train_loss", rows[self.global_step][1])
            return self.layer(batch).mean()

        def validation_step(self, batch: torch.Tensor, _: int) -> None:
            self.log("val_loss", torch.tensor(rows[self.global_step - 1][2], dtype=torch.float64))

        def on_validation_end(self) -> None:
            if self.global_step == len(rows) < LAST:
                raise KeyboardInterrupt

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.0)

    data = torch.utils.data.DataLoader(torch.zeros(LAST, 1))
    quiet = dict.fromkeys(("enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    evaluates: dict[str, Any] = {"val_check_interval": 1, "limit_val_batches": 1, "num_sanity_val_steps": 0}
    running = lightning.Trainer(
        accelerator="cpu", max_steps=LAST, logger=logger, log_every_n_steps=1, **quiet, **evaluates
    )
    try:
        running.fit(Known(), data, data)
    except (KeyboardInterrupt, SystemExit):
        assert len(rows) < LAST


WANDB = """
import os, sys, time, wandb
folder, killed, *rows = sys.argv[1:]
quiet = wandb.Settings(console="off", x_disable_stats=True)
run = wandb.init(mode="offline", dir=folder, project="p", name=os.path.basename(folder), settings=quiet)
for row in rows:
    step, train, value = row.split()
    run.log({"train/loss": float(train)}, step=int(step))
    run.log({"eval/loss": float(value)}, step=int(step))
if killed == "yes":  # before another evaluation; wandb writes 32 KiB at a time
    for after in range(2000):
        run.log({"train/loss": 3.0}, step=int(step) + after)
    time.sleep(2)
    os._exit(9)
run.finish()
"""


def wandb(folder: Path, rows: History) -> None:
    pytest.importorskip("wandb")
    folder.mkdir()
    killed = "yes" if len(rows) < LAST else "no"
    words = [f"{step} {train!r} {value!r}" for step, train, value in rows]
    ended = subprocess.run([sys.executable, "-c", WANDB, folder, killed, *words], check=False, capture_output=True)
    assert ended.returncode == (9 if killed == "yes" else 0), ended.stderr


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("write", [trainer, lightning, tensorboard, wandb])
def test_real_logs_give_the_verdicts_of_the_equal_table(write: Write, tmp_path: Path) -> None:
    rows = []
    for arm, seed, run in histories():
        steps = rows_of(run)
        write(tmp_path / f"{arm}-s{seed}", steps)
        before = write in (lightning, tensorboard)  # Lightning counts from 0
        rows += [(arm, str(seed), step - before, value) for step, _, value in steps]
    table = ablate.compare(pl.DataFrame(rows, schema=["arm", "seed", "step", "loss"], orient="row"), baseline="base")
    logs = f"{tmp_path}/{{arm}}-s{{seed}}{'/lightning_logs' * (write in (lightning, tensorboard))}"
    found = ablate.compare(logs, baseline="base")
    for mine, theirs in zip(*(each.contrasts.sort("arm").rows(named=True) for each in (found, table)), strict=True):
        assert [mine[name] for name in ("arm", "verdict", "paired")] == [
            theirs[name] for name in ("arm", "verdict", "paired")
        ]
        assert math.isclose(mine["difference"], theirs["difference"], abs_tol=1e-6)
    lists = [{note for note in each.notes if "left out" in note or "failed" in note} for each in (found, table)]
    assert lists[0] == lists[1] and len(lists[0]) == 2
    if write is wandb:
        (tmp_path / "all").mkdir()
        for path in tmp_path.glob("*/wandb/offline-run-*"):
            (tmp_path / "all" / path.name).symlink_to(path)
        assert ablate.compare(f"{tmp_path}/all#{{arm}}-s{{seed}}", baseline="base").contrasts.equals(found.contrasts)
