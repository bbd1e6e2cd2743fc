"""Metrics of which more is better: judged with the sign reversed if asked, and noted if not."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import ablate
from ablate.cli import main
from tests.ablate.wings.compare.test_loss_files import CSV, FRAME, saved


def test_more_may_be_better(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Verdicts of negated values, with differences, ends and words in the user's sign."""
    odd = [0.60, 0.612, 0.601, 0.619, 0.613, 0.40]
    arms = {"a": [0.50, 0.51, 0.50, 0.52, 0.51, 0.50], "b": odd}
    rows = [(arm, seed, value) for arm, values in arms.items() for seed, value in enumerate(values)]
    frame = pl.DataFrame(rows, schema=["arm", "seed", "acc"], orient="row")
    up = ablate.compare(frame, metric="acc", higher_is_better=True)
    down = ablate.compare(frame.with_columns(loss=-pl.col("acc")))
    (more,), (less,) = (each.contrasts.to_dicts() for each in (up, down))
    assert (more["difference"], more["low"], more["high"]) == (-less["difference"], -less["high"], -less["low"])
    assert more["p"] == less["p"] and more["verdict"] == less["verdict"]
    assert more["difference"] > 0 and "seed 5 of b ended 0.21 above the others" in less["reason"]
    assert "seed 5 of b ended 0.21 below the others" in more["reason"] and "the difference is +" in more["reason"]
    assert up.arms["loss"].to_list() == pytest.approx([sum(values) / 6 for values in arms.values()])
    assert up.notes[0] == "higher `acc` counts as better"
    path = saved(tmp_path, CSV.replace("loss", "accuracy"))
    assert main(["compare", str(path), "--metric", "accuracy", "--higher-is-better"]) == 0
    printed = capsys.readouterr().out
    assert "better" in printed and "+0.14" in printed


def test_a_failed_run_is_the_worst_whichever_way(tmp_path: Path) -> None:
    path = saved(tmp_path, CSV.replace("4.29", "").replace("4.27", "-inf").replace("4.3\n", "nan\n"))
    found = ablate.compare(path, higher_is_better=True)
    assert found.contrasts["verdict"].to_list() == ["diverged"]
    assert "counted as failed: seeds 0, 1, 2 of post (empty or -inf or NaN)" in found.notes


@pytest.mark.parametrize(
    "metric",
    ["accuracy", "eval/acc_norm,none", "Reward", "mean_return", "score", "f1", "eval_rougeL", "winRate", "exact_match"],
)
def test_a_metric_whose_name_says_that_more_is_better_has_a_note(metric: str) -> None:
    found = ablate.compare(FRAME.rename({"loss": metric}), metric=metric)
    remedy = "if higher is better, use --higher-is-better (in Python higher_is_better=True)"
    assert found.notes[0] == f"lower `{metric}` counts as better, as for a loss: {remedy}"


@pytest.mark.parametrize(
    "metric", ["loss", "bpb", "word_error_rate", "accuracy_loss", "brier_score", "val_nll", "accent"]
)
def test_a_metric_that_may_be_a_loss_has_no_such_note(metric: str) -> None:
    found = ablate.compare(FRAME.rename({"loss": metric}), metric=metric)
    assert not any("counts as better" in note for note in found.notes)


def test_stores_have_losses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "norm_placement", "--stores", "a", "b", "--higher-is-better"]) == 2
    assert "--higher-is-better cannot be combined with --stores" in capsys.readouterr().err


def test_the_column_that_is_judged_is_named_where_there_is_a_choice(tmp_path: Path) -> None:
    """In a table, and in logs, whose arms may even use different names."""
    plain = ablate.compare(FRAME)
    beside = FRAME.with_columns(val_loss=pl.col("loss") + 1)
    note = "the loss is `loss`, not `val_loss` (unless you name it as the metric)"
    assert note in ablate.compare(beside).notes
    assert "the loss is `val_loss`" in ablate.compare(beside.drop("loss")).notes
    assert not any(
        "the loss is" in note for each in (plain, ablate.compare(beside, metric="loss")) for note in each.notes
    )
    for arm, seed, loss in FRAME.select("arm", "seed", "loss").iter_rows():
        (tmp_path / f"{arm}-s{seed}.jsonl").write_text(f'{{"step": 9, "eval_loss": {loss}}}\n')
    alike = ablate.compare(f"{tmp_path}/{{arm}}-s{{seed}}.jsonl")
    assert "the loss is `eval_loss`" in alike.notes and alike.metric == "eval_loss"
    first = FRAME["arm"][0]
    for path in tmp_path.glob(f"{first}-s*"):
        path.write_text(path.read_text().replace("eval_loss", "val/loss"))
    unlike = ablate.compare(f"{tmp_path}/{{arm}}-s{{seed}}.jsonl")
    assert any("`val/loss` of " + first in note and "`eval_loss` of " in note for note in unlike.notes)
