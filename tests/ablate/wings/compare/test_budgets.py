"""`ablate compare` on runs at several sizes: effective compute, whichever columns tell of it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import ablate
from ablate.cli import main

SIZES = {"125M": 1.25e8, "350M": 3.5e8, "760M": 7.6e8, "1.3B": 1.3e9}
WORTH = {"base": 1.0, "wide": 1.25, "narrow": 0.8}
SPEED = {"base": 1.0, "wide": 0.8, "narrow": 1.25}


def table(seeds: int = 1, noise: float = 4e-4, sizes: int = 4) -> pl.DataFrame:
    """20 tokens per parameter; FLOPs are 6·N·D. The losses are those of the baseline's law at `WORTH` × the compute."""
    draw, rows = np.random.default_rng(0), []
    for size, params in list(SIZES.items())[:sizes]:
        for arm, factor in WORTH.items():
            for seed in range(seeds):
                flops = 120 * params**2
                loss = 1.7 + 1.6 * (factor * flops / 1e19) ** -0.15
                loss *= 1 + noise * draw.standard_normal()
                rows.append((arm, seed, size, params, 20 * params, flops, 1e13 / params * SPEED[arm], loss))
    names = ["arm", "seed", "size", "params", "tokens", "flops", "tokens_per_second", "loss"]
    return pl.DataFrame(rows, schema=names, orient="row")


def factors(found: ablate.LossComparison) -> dict[str, float]:
    return dict(found.compute.select("arm", "factor").iter_rows())


@pytest.fixture(scope="module")
def whole() -> ablate.LossComparison:
    """What is found where every column is there."""
    return ablate.compare(table())


def test_one_seed_at_four_sizes_is_an_answer(whole: ablate.LossComparison) -> None:
    found = whole
    rows = {row["arm"]: row for row in found.compute.iter_rows(named=True)}
    for arm in ("wide", "narrow"):
        assert rows[arm]["low"] < WORTH[arm] < rows[arm]["high"] < 1.2 * rows[arm]["low"]
        seconds = WORTH[arm] * SPEED[arm]
        assert rows[arm]["seconds_low"] < seconds < rows[arm]["seconds_high"]
        assert rows[arm]["budgets"] == 4
    assert (rows["wide"]["verdict"], rows["narrow"]["verdict"]) == ("better", "worse")
    assert rows["wide"]["noise_origin"] == "the misfit of the joint curve"
    assert found.by_budget.filter(arm="wide")["budget"].to_list() == list(SIZES)
    assert found.contrasts["verdict"].to_list() == ["cannot tell", "cannot tell"]  # a single seed at the largest size
    assert "differences in loss are those at the largest budget, 1.3B" in found.notes
    assert any("from the misfit of the joint curve (4 degrees of freedom)" in note for note in found.notes)


@pytest.mark.parametrize(
    "columns",
    [
        ["size", "tokens"],
        ["params", "tokens"],
        ["flops"],
        ["size", "flops"],
        ["size", "params", "tokens", "flops"],
    ],
    ids=" ".join,
)
def test_compute_is_known_by_several_sets_of_columns(columns: list[str], whole: ablate.LossComparison) -> None:
    found = ablate.compare(table().select("arm", "seed", "loss", *columns))
    assert factors(found) == pytest.approx(factors(whole), rel=1e-6)
    assert found.compute["seconds"].null_count() == 2
    assert "FLOPs are 6 × parameters × tokens" in found.notes or "flops" in columns


@pytest.mark.parametrize("name", ["parameters", "n_params"])
def test_amounts_are_read_as_people_write_them(name: str, tmp_path: Path, whole: ablate.LossComparison) -> None:
    written = table().select("arm", "seed", "loss", pl.col("size").alias(name), tokens=pl.col("tokens") / 1e9)
    written = written.with_columns(tokens=pl.col("tokens").cast(pl.String) + "B")
    written.write_csv(tmp_path / "t.csv")
    assert factors(ablate.compare(tmp_path / "t.csv")) == pytest.approx(factors(whole), rel=1e-6)


def test_lengths_of_one_size_are_budgets_too() -> None:
    lengths = table(sizes=3).with_columns(params=pl.lit(1e8), tokens=pl.col("flops") / 6e8).drop("size", "flops")
    found = ablate.compare(lengths)
    assert found.compute["budgets"].to_list() == [3, 3]
    assert found.compute["verdict"].to_list() == ["better", "worse"]


def test_a_history_is_not_a_curve() -> None:
    """The tokens of a history count a run's progress: a loss before its end is not that of a shorter run."""
    rows = [
        (arm, seed, step, step * 1e6, 1e8, 4 - step / 1000 + seed / (100 + 20 * (arm == "b")) + (arm == "b") / 10)
        for arm in "ab"
        for seed in range(3)
        for step in (100, 200, 300)
    ]
    names = ["arm", "seed", "step", "tokens", "params", "loss"]
    found = ablate.compare(pl.DataFrame(rows, schema=names, orient="row"))
    assert not found.compute.height
    assert found.contrasts["verdict"].to_list() == ["worse"]


def test_seeds_give_the_noise_and_the_differences_at_the_largest_size() -> None:
    found = ablate.compare(table(seeds=3))
    assert found.compute["noise_origin"].to_list() == ["runs that differ in their seed"] * 2
    plain = ablate.compare(table(seeds=3).filter(size="1.3B").drop("size", "params", "tokens", "flops"))
    assert found.contrasts.equals(plain.contrasts)
    assert not plain.compute.height
    assert set(plain.document()) == {"arms", "contrasts", "detectable", "notes"}


def test_two_sizes_and_a_known_noise() -> None:
    two = table(sizes=2).filter(pl.col("arm") != "narrow")
    wide = ablate.compare(two).compute.row(0, named=True)
    known = ablate.compare(two, sigma=0.0015).compute.row(0, named=True)
    assert known["high"] / known["low"] < wide["high"] / wide["low"]
    assert known["low"] < 1.25 < known["high"]
    assert known["noise_origin"] == "the misfit of the joint curve and the given sigma"


def test_an_arm_is_judged_against_a_pinned_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = table(seeds=2)
    runs.filter(arm="base").write_csv(tmp_path / "march.csv")
    runs.filter(pl.col("arm") == "wide", pl.col("size") == "1.3B").write_csv(tmp_path / "wide.csv")
    assert main(["compare", str(tmp_path / "wide.csv"), "--curve", str(tmp_path / "march.csv"), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["compute"][0]
    assert (row["arm"], row["against"], row["budgets"]) == ("wide", "base", 1)
    assert row["low"] < 1.25 < row["high"]
    with pytest.raises(ablate.ArgumentError, match="has several arms, base, wide, narrow: name one as the baseline"):
        ablate.compare(runs.filter(arm="wide"), curve=runs)
    with pytest.raises(ablate.ArgumentError, match="runs of base are both in the curve and in the table"):
        ablate.compare(runs, curve=runs.filter(arm="base"))


def test_an_arm_with_a_failed_run_is_not_better() -> None:
    failed = pl.when(pl.col("arm") == "wide", pl.col("size") == "125M").then(math.nan).otherwise("loss")
    found = ablate.compare(table(seeds=2).with_columns(loss=failed))
    row = found.compute.row(0, named=True)
    assert row["verdict"] == "inconclusive"
    assert row["reason"] == "2 runs of wide failed, so wide cannot be better"
    assert any(note.startswith("counted as failed: seeds 0, 1 of wide at 125M (") for note in found.notes), found.notes


def test_sizes_without_compute_are_refused_with_the_remedy() -> None:
    with pytest.raises(
        ablate.ArgumentError,
        match=r"runs differ in size or tokens.*: 12 of 12 runs lack `tokens`, the first is seed 0 of base at 125M",
    ):
        ablate.compare(table().select("arm", "seed", "size", "loss"))
    lost = pl.when(pl.col("size") != "350M").then("tokens")
    with pytest.raises(ablate.ArgumentError, match="3 of 12 runs lack `tokens`, the first is seed 0 of base at 350M;"):
        ablate.compare(table().with_columns(tokens=lost, flops=None))
    own_seeds = table().with_columns(seed=pl.int_range(pl.len())).drop("flops", "tokens")
    with pytest.raises(ablate.ArgumentError, match="needs `flops` of every run"):
        ablate.compare(own_seeds)
    rates = pl.concat([table().with_columns(rate=pl.lit(rate)) for rate in (1e-3, 2e-3)])
    with pytest.raises(ablate.ArgumentError, match="base has a seed twice at 125M: mark the runs that chose its rate"):
        ablate.compare(rates)


def test_scores_have_no_effective_compute() -> None:
    found = ablate.compare(table(seeds=2), higher_is_better=True)
    assert not found.compute.height
    assert any(note.startswith("no effective compute") for note in found.notes)


def test_the_terminal_says_what_it_is_worth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table().write_csv(tmp_path / "t.csv")
    assert main(["compare", str(tmp_path / "t.csv")]) == 0
    said = capsys.readouterr().out
    assert "wide: over 4 budgets ×1.2" in said
    assert "so ×" in said and "at equal seconds" in said
    assert "0.01 nats are " in said
