"""`ablate.compare`: anybody's losses, judged as pages judge theirs."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats

import ablate
from ablate.cli import main
from tests.moderated import moderated
from tests.regression import holm

PRE, POST, DOUBLE = [4.155, 4.132, 4.140, 4.149], [4.296, 4.273, 4.290, 4.281], [4.167, 4.151, 4.148, 4.172]


def frame(**arms: list[float]) -> pl.DataFrame:
    rows = [(arm, seed, loss) for arm, losses in arms.items() for seed, loss in enumerate(losses)]
    return pl.DataFrame(rows, schema=["arm", "seed", "loss"], orient="row")


def test_two_arms_are_judged_by_variances_drawn_towards_each_other() -> None:
    found = ablate.compare(frame(pre=PRE, post=POST)).contrasts.row(0, named=True)
    test = moderated({"pre": PRE, "post": POST}, "post", "pre")
    assert found["difference"] == pytest.approx(np.mean(POST) - np.mean(PRE))
    assert found["p"] == pytest.approx(test.p)
    assert (found["low"], found["high"]) == pytest.approx(test.interval(0.05))
    assert (found["arm"], found["against"], found["verdict"]) == ("post", "pre", "worse")
    assert found["reason"] == "4 paired seeds"


def test_holm_corrects_over_three_arms() -> None:
    losses = {"pre": PRE, "post": POST, "double": DOUBLE}
    tests = [moderated(losses, name, "pre") for name in ("post", "double")]
    found = ablate.compare(frame(**losses))
    assert found.contrasts["p"].to_list() == pytest.approx(holm([test.p for test in tests]))
    assert found.contrasts["p"][0] == pytest.approx(2 * tests[0].p)
    ends = found.contrasts.select("low", "high").rows()
    assert ends == [pytest.approx(test.interval(0.025)) for test in tests]
    powers = []
    for side in (test.worse for test in tests):
        assert side is not None and found.detectable is not None
        critical = stats.t.isf(0.0125, side.freedom)
        powers.append(stats.nct.sf(critical, side.freedom, found.detectable / side.error))
    assert min(powers) == pytest.approx(0.8, abs=1e-6)


def test_seeds_that_arms_do_not_share_are_not_paired() -> None:
    losses = frame(pre=PRE, post=POST).with_columns(seed=pl.int_range(pl.len()))
    found = ablate.compare(losses).contrasts.row(0, named=True)
    test = moderated({"pre": dict(enumerate(PRE)), "post": dict(enumerate(POST, 4))}, "post", "pre")
    assert (found["p"], found["low"], found["high"]) == pytest.approx((test.p, *test.interval(0.05)))
    assert (found["reason"], found["paired"]) == ("4 and 4 seeds, none in common", 0)


def test_seeds_may_be_words_and_an_arm_that_failed_does_not_unpair_the_others() -> None:
    losses = frame(pre=PRE, post=POST).with_columns(
        seed=pl.lit("a long name of seed ") + pl.col("seed").cast(pl.String)
    )
    failed = losses.filter(arm="pre").with_columns(arm=pl.lit("gone"), loss=pl.lit(math.inf))
    named, numbered = ablate.compare(pl.concat([losses, failed])), ablate.compare(frame(pre=PRE, post=POST))
    assert named.contrasts["verdict"].to_list() == ["worse", "diverged"]
    word, number = (each.contrasts.row(0, named=True) for each in (named, numbered))
    assert (word["difference"], word["p"]) == (number["difference"], pytest.approx(2 * number["p"]))  # of two contrasts
    assert "4 paired seeds" in word["reason"]


def test_margin_failures_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tie = ablate.compare(frame(pre=PRE, double=DOUBLE), margin=0.1).contrasts.row(0, named=True)
    assert tie["verdict"] == "no difference"
    failed = ablate.compare(frame(pre=PRE, better=[3.9, 3.91, 3.89, math.nan])).contrasts.row(0, named=True)
    assert failed["verdict"] == "inconclusive"
    assert "1 of 4 runs of better failed, so better cannot be better" in failed["reason"]
    gone = ablate.compare(frame(pre=PRE, gone=[math.inf] * 4)).contrasts.row(0, named=True)
    assert gone["verdict"] == "diverged"
    path = tmp_path / "losses.csv"
    frame(pre=PRE, post=POST).write_csv(path)
    assert main(["compare", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"arms", "contrasts", "detectable", "notes"}
    numbers, words = {"difference", "low", "high", "p", "paired"}, {"arm", "against", "verdict", "reason"}
    assert set(document["contrasts"][0]) == numbers | words
    from_pandas = ablate.compare(pd.read_csv(path), baseline="post").contrasts.row(0, named=True)
    assert (from_pandas["arm"], from_pandas["verdict"]) == ("pre", "better")
    assert main(["compare", str(path)]) == 0
    assert "worse" in capsys.readouterr().out


def tuned(edge: bool) -> pl.DataFrame:
    """Two arms, each tuned on two seeds at three rates; with an edge, the second is best at its highest."""
    draw, rows = np.random.default_rng(1), []
    for arm, best in (("pre", 2e-2), ("post", 4e-2 if edge else 2e-2)):
        for rate in (1e-2, 2e-2, 4e-2):
            mean = 4 + 0.2 * math.log2(rate / best) ** 2
            rows += [(arm, 100 + seed, mean + draw.normal(0, 0.005), rate, "tuning") for seed in range(2)]
        rows += [(arm, seed, 4 + 0.3 * (arm == "post") + draw.normal(0, 0.005), best, "judging") for seed in range(4)]
    return pl.DataFrame(rows, schema=["arm", "seed", "loss", "rate", "split"], orient="row")


def test_tuning_runs_add_room_and_an_edge_has_no_end() -> None:
    inside, judged = tuned(edge=False), tuned(edge=False).filter(split="judging").drop("split", "rate")
    room, plain = (ablate.compare(each).contrasts.row(0, named=True) for each in (inside, judged))
    assert room["verdict"] == plain["verdict"] == "worse"
    assert room["high"] - room["low"] > 0
    edge = ablate.compare(tuned(edge=True)).contrasts.row(0, named=True)
    assert edge["low"] == -math.inf and edge["verdict"] == "inconclusive"
    assert "the best learning rate of post is at the edge of those tried" in edge["reason"]


def test_tuned_scores_are_judged_as_tuned_losses() -> None:
    """Accuracies in per cent: what a choice has cost is not bounded by the loss left, as it is for one above zero."""
    errors = tuned(edge=False).with_columns(loss=30 + pl.col("loss"))
    accuracies = errors.with_columns(loss=100 - pl.col("loss"))
    down = ablate.compare(errors).contrasts.row(0, named=True)
    up = ablate.compare(accuracies, higher_is_better=True).contrasts.row(0, named=True)
    assert up["verdict"] == down["verdict"]
    assert (up["difference"], up["low"], up["high"]) == pytest.approx(
        (-down["difference"], -down["high"], -down["low"])
    )


@pytest.mark.parametrize(
    ("losses", "says"),
    [
        (frame(pre=PRE).rename({"loss": "los"}), "no column `loss` (did you mean 'los'?); columns: arm, seed, los"),
        (frame(pre=PRE), "only one arm, pre"),
        (frame(pre=PRE, post=POST).with_columns(split=pl.lit("test")), "expected tuning or judging, not 'test'"),
        (frame(pre=PRE, post=POST).with_columns(seed=0), "row 2 repeats seed 0 of pre from row 1: keep one row"),
        (
            frame(pre=PRE, post=POST).with_columns(rate=pl.col("loss")),
            "pre has judging runs at 4 rates: mark the runs that chose its rate as `tuning`",
        ),
        (
            frame(pre=PRE, post=POST).with_columns(loss=pl.lit("x")),
            "row 1: loss: 'x' is not a number: leave the cell empty",
        ),
        (frame(a=PRE, b=POST).with_columns(arm=pl.concat_list("arm")), "row 1: arm: expected a number or a word"),
        (frame(a=PRE, b=POST).with_columns(seed=pl.concat_list("seed")), "row 1: seed: expected a number or a word"),
    ],
)
def test_what_cannot_be_read_is_one_line(losses: pl.DataFrame, says: str) -> None:
    with pytest.raises(ablate.ArgumentError) as error:
        ablate.compare(losses)
    assert says in str(error.value) and "\n" not in str(error.value)


def test_a_baseline_that_is_not_there() -> None:
    with pytest.raises(ablate.ArgumentError, match=r"no arm of that name .did you mean 'pre'"):
        ablate.compare(frame(pre=PRE, post=POST), baseline="prx")


def test_what_is_detectable_holds_for_the_noisiest_pair() -> None:
    """All comparisons with an arm that is ten times as noisy are blurred."""
    draw = np.random.default_rng(0)
    calm = {name: (4 + draw.normal(0, 0.002, 6)).tolist() for name in ("b", "c", "d")}
    found = ablate.compare(frame(a=(4 + draw.normal(0, 0.03, 6)).tolist(), **calm), baseline="a")
    quiet = ablate.compare(frame(**calm)).detectable
    assert found.detectable is not None and quiet is not None and found.detectable > 5 * quiet
    with_a = 2 * 0.03 / math.sqrt(6)  # two standard errors: less is found in fewer than half of such studies
    assert found.detectable > with_a


def test_arms_that_move_together_are_told_apart_by_less_than_the_scatter_of_either() -> None:
    base = [2.400, 2.412, 2.391, 2.403, 2.397, 2.409]
    losses = {
        "base": base,
        "near": [loss + off for loss, off in zip(base, (0.002, 0.0021, 0.0019, 0.002, 0.0022, 0.0018), strict=True)],
        "other": [loss + off for loss, off in zip(base, (0.01, 0.0102, 0.0099, 0.0101, 0.01, 0.0098), strict=True)],
    }
    found = ablate.compare(frame(**losses)).contrasts
    tests = [moderated(losses, name, "base") for name in ("near", "other")]
    assert found["p"].to_list() == pytest.approx(holm([test.p for test in tests]))
    assert found["verdict"].to_list() == ["worse", "worse"]
    apart = ablate.compare(frame(**losses).with_columns(seed=pl.int_range(pl.len()))).contrasts
    assert apart["difference"].to_list() == pytest.approx(found["difference"].to_list())
    assert apart["verdict"].to_list() == ["inconclusive", "inconclusive"]


@pytest.mark.parametrize("arms", [3, 4])
def test_one_bad_seed_is_named_with_its_distance(arms: int) -> None:
    draw = np.random.default_rng(arms)
    for _ in range(40):
        losses = draw.normal(2.4, 0.012, (arms, 5))
        losses[0, 0] += 0.5
        found = ablate.compare(frame(**{f"arm {arm}": of for arm, of in enumerate(losses.tolist())}), baseline="arm 1")
        with_it = found.contrasts.filter(arm="arm 0")["reason"].item()
        above = losses[0, 0] - np.median(losses[0])
        assert f"seed 0 of arm 0 ended {above:.2g} above the others" in with_it
        others = found.contrasts.filter(pl.col("arm") != "arm 0")["reason"]
        assert not others.str.contains("of arm 0").any()


def test_a_run_that_ended_far_below_the_others_counts_and_makes_no_winner() -> None:
    draw = np.random.default_rng(5)
    losses = draw.normal(2.4, 0.01, (4, 6))
    losses[1, 2] -= 0.3
    found = ablate.compare(frame(**{f"arm {arm}": of for arm, of in enumerate(losses.tolist())})).contrasts.row(
        0, named=True
    )
    without = np.delete(losses[1], 2).mean() - losses[0].mean()
    assert found["reason"].startswith(
        f"6 paired seeds; seed 2 of arm 1 ended 0.29 below the others: without it the difference is {without:+.2g}; "
    )
    assert found["difference"] == pytest.approx(losses[1].mean() - losses[0].mean())
    assert found["difference"] < -0.04 and found["verdict"] == "inconclusive"


def test_an_odd_seed_stays_in_the_difference_and_the_reason_says_what_it_makes_of_it() -> None:
    for number in range(20):
        draw = np.random.default_rng(number)
        arms = {name: (4 + draw.normal(0, 0.004, 6)).tolist() for name in ("a", "b", "c")}
        arms["b"][2] += 0.3
        found = ablate.compare(frame(**arms)).contrasts.filter(arm="b").row(0, named=True)
        assert found["difference"] == pytest.approx(np.mean(arms["b"]) - np.mean(arms["a"]))
        above, without = arms["b"][2] - np.median(arms["b"]), np.mean(np.delete(arms["b"], 2)) - np.mean(arms["a"])
        said = f"seed 2 of b ended {above:.2g} above the others: without it the difference is {without:+.2g}"
        assert said in found["reason"]


def test_one_bad_run_neither_makes_an_arm_worse_nor_hides_that_it_is() -> None:
    """It counts as one four standard deviations above the middle of its arm."""
    quiet = {"a": PRE, "c": DOUBLE}
    level = ablate.compare(frame(**quiet, b=[4.141, 4.152, 4.135, 9.0])).contrasts.filter(arm="b").row(0, named=True)
    assert level["difference"] > 1 and level["verdict"] == "inconclusive"
    plain = {**quiet, "b": [*POST[:3], 9.0]}
    found = ablate.compare(frame(**plain)).contrasts.filter(arm="b").row(0, named=True)
    test = moderated(plain, "b", "a")
    assert found["verdict"] == "worse"
    assert found["p"] == pytest.approx(2 * test.p)
    assert (found["low"], found["high"]) == pytest.approx(test.interval(0.025))
    fails = {**quiet, "b": [*POST[:3], math.inf]}
    found = ablate.compare(frame(**fails)).contrasts.filter(arm="b").row(0, named=True)
    assert (found["verdict"], found["high"]) == ("worse", math.inf)
    test = moderated(fails, "b", "a")
    assert (found["p"], found["low"]) == pytest.approx((2 * test.p, test.interval(0.025)[0]))


def test_a_failed_run_rules_out_that_its_arm_is_better() -> None:
    losses = frame(a=PRE, b=[*np.subtract(PRE[:3], [0.5, 0.51, 0.49]), math.nan])
    found = ablate.compare(losses).contrasts.row(0, named=True)
    assert (found["p"], found["high"], found["verdict"]) == (1.0, math.inf, "inconclusive")
    assert found["difference"] == pytest.approx(np.mean(PRE[:3]) - 0.5 - np.mean(PRE))
    assert "1 of 4 runs of b failed, so b cannot be better" in found["reason"]
    turned = ablate.compare(losses, baseline="b").contrasts.row(0, named=True)
    assert (turned["p"], turned["low"], turned["verdict"]) == (1.0, -math.inf, "inconclusive")
    assert "1 of 4 runs of b failed, so a cannot be worse" in turned["reason"]


@pytest.mark.parametrize("blank", ["", "\n", "\n\n", "\r\n"])
def test_a_heading_alone_has_no_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str], blank: str) -> None:
    path = tmp_path / "losses.csv"
    path.write_text(f"arm,seed,loss\n{blank}")
    assert main(["compare", str(path)]) == 2
    assert capsys.readouterr().err == f"ablate: {path}: has no rows below its header\n"


@pytest.mark.parametrize(
    ("columns", "metric"),
    [
        (("Arm", " SEED", "Loss"), None),
        (("arm", "seed", "val_loss"), None),
        (("arm", "seed", "Eval/Loss"), None),
        (("arm", "seed", "bpb"), "bpb"),
        (("arm", "seed", "BPB"), "bpb"),
    ],
)
def test_columns_are_found_whatever_their_case(columns: tuple[str, ...], metric: str | None, tmp_path: Path) -> None:
    path = tmp_path / "losses.csv"
    frame(pre=PRE, post=POST).rename(dict(zip(("arm", "seed", "loss"), columns, strict=True))).write_csv(path)
    found, plain = ablate.compare(path, metric=metric), ablate.compare(frame(pre=PRE, post=POST))
    said = () if metric or columns[2] == "Loss" else (f"the loss is `{columns[2]}`",)
    assert found.document() == {**plain.document(), "notes": [*said, *plain.notes]}


def test_a_metric_is_a_column_and_another_one_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    losses = frame(pre=PRE, post=POST).with_columns(val_loss=-pl.col("loss"))
    assert ablate.compare(losses).contrasts["verdict"].to_list() == ["worse"]
    assert ablate.compare(losses, metric="val_loss").contrasts["verdict"].to_list() == ["better"]
    losses.write_csv(tmp_path / "wandb.csv")
    assert main(["compare", str(tmp_path / "wandb.csv"), "--metric", "val_los"]) == 2
    said = "--metric val_los: no column of that name (did you mean 'val_loss'?); columns: arm, seed, loss, val_loss\n"
    assert capsys.readouterr().err == f"ablate: {said}"
    with pytest.raises(ablate.ArgumentError, match="columns 'Arm' and 'ARM': keep one of them, and call it `arm`"):
        ablate.compare(losses.with_columns(Arm="arm", ARM="arm").drop("arm"))


def test_failed_runs_are_named_with_their_cells(tmp_path: Path) -> None:
    path = tmp_path / "losses.csv"
    path.write_text("arm,seed,loss\na,0,1\na,1,2\na,2,3\nb,0,\nb,1,nan\nb,2,1\nc,0,inf\nc,1,2\nc,2,3\n")
    found = ablate.compare(path)
    assert "counted as failed: seeds 0, 1 of b (empty or NaN); seed 0 of c (inf)" in found.notes
    assert found.arms["failed"].to_list() == [0, 2, 1]


def test_a_loss_whose_square_is_no_float_is_a_failed_run() -> None:
    found = ablate.compare(frame(a=PRE, b=[1e307, *PRE[1:]]))
    assert found.arms["failed"].to_list() == [0, 1] and found.contrasts["verdict"].to_list() == ["inconclusive"]


UNKNOWN = "seed noise is unknown"


@pytest.mark.parametrize(
    ("losses", "difference", "reason"),
    [
        (
            frame(a=PRE, b=PRE),
            0.0,
            "both arms have the same loss at every seed: they compute the same",
        ),
        (frame(a=[3.0], b=[3.1]), 0.1, f"fewer than two finished seeds in b and a: {UNKNOWN}"),
        (
            frame(a=PRE, b=[4.2, math.nan]),
            4.2 - np.mean(PRE),
            f"fewer than two finished seeds in b: {UNKNOWN}",
        ),
        (frame(a=[math.nan] * 5, b=PRE), None, "no run of a has a finite loss"),
    ],
)
def test_what_cannot_be_tested_has_an_estimate_alone(
    losses: pl.DataFrame, difference: float | None, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ablate.compare(losses).contrasts.row(0, named=True)
    assert (found["p"], found["low"], found["high"], found["verdict"]) == (None, None, None, "cannot tell")
    assert found["difference"] == (difference if difference is None else pytest.approx(difference))
    assert found["reason"] == reason
    given = ablate.compare(losses, sigma=0.02).contrasts.row(0, named=True)
    assert given["p"] is None and given["reason"] == reason.replace(
        UNKNOWN, "a known sigma only adds to what seeds show"
    )
    losses.write_csv(tmp_path / "losses.csv")
    assert main(["compare", str(tmp_path / "losses.csv")]) == 0
    assert ("–" if difference is None else f"{difference:+.4f}".replace("+0.0000", "0.0000")) in capsys.readouterr().out


@pytest.mark.parametrize("given", [{"losses": {"arm": ["a"]}}, {"losses": frame(a=PRE, b=POST), "margin": "0.02"}])
def test_what_is_no_frame_or_number_is_said(given: dict[str, object]) -> None:
    with pytest.raises(ablate.ArgumentError):
        ablate.compare(**given)  # type: ignore[arg-type]


def test_what_weakens_tuning_is_noted() -> None:
    """Rates that are not known or were never tried, and seeds that chose a rate and judge it."""

    def said(losses: pl.DataFrame) -> tuple[str, ...]:
        *notes, always = ablate.compare(losses).notes
        assert always.startswith("judge a table once")
        return tuple(notes)

    inside = tuned(edge=False)
    assert not said(inside)
    judging = pl.col("split") == "judging"
    no_rate = said(inside.with_columns(rate=pl.when(judging).then(None).otherwise(pl.col("rate"))))
    assert no_rate == ("pre, post: judging runs have no rate; assumed to be the best rate of the tuning runs",)
    other = said(inside.with_columns(rate=pl.when(judging).then(0.5).otherwise(pl.col("rate"))))
    assert other == ("pre, post: judged at a rate that was not tried in tuning",)
    same = said(inside.with_columns(seed=pl.col("seed") % 100))
    assert same == ("pre, post: tuned and judged on the same seeds, so the chosen rate looks better than it is",)
    with pytest.raises(ablate.ArgumentError, match="row 1: rate: expected a finite number above 0, not -1"):
        ablate.compare(inside.with_columns(rate=-pl.col("rate") / pl.col("rate")))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            pl.col("loss").map_elements(lambda loss: [loss], return_dtype=pl.List(pl.Float64)),
            r"row 1: loss: \[4.155\] is not a number",
        ),
        (pl.struct(a="loss").alias("loss"), "row 1: loss: {'a': 4.155} is not a number"),
    ],
    ids=["list", "struct"],
)
def test_a_column_of_no_numbers_is_one_line(change: pl.Expr, says: str) -> None:
    with pytest.raises(ablate.ArgumentError, match=says):
        ablate.compare(frame(a=PRE, b=POST).with_columns(change))


def test_a_margin_may_be_numpy_s() -> None:
    assert ablate.compare(frame(a=PRE, b=POST), margin=np.float32(0.1)).contrasts.height == 1
