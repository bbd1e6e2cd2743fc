"""Numbers and findings in words."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import reports
from reports.judge.statistics.estimates import Estimate, estimate, judge, single
from reports.page.wording import answers, cost_words, finding_words, method_words, words
from tests.reports.factory import Arm, StudyOf, typical


def measured(ratios: list[float]) -> Estimate:
    """Ratios of a cost, one for each process; a single one has no interval."""
    return judge({"cost": [math.log(ratio) for ratio in ratios]})["cost"] if len(ratios) > 1 else single(ratios[0])


def centred(mean: float, half: float) -> Estimate:
    return Estimate(mean, mean - half, mean + half, 1.0, (mean,))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (centred(-0.01234, 0.0042), "-0.0123 ± 0.0042"),
        (centred(2.31049, 0.0312), "2.310 ± 0.031"),
        (centred(2.31049, 1.26), "2.3 ± 1.3"),
        (centred(2.31049, 0.00001234), "2.3105 ± 0.0000"),
        (estimate([2.5]), "2.500"),
        (None, "–"),
    ],
)
def test_two_digits_of_the_interval_decide(value: Estimate | None, text: str) -> None:
    assert words.plus_minus(value) == text


def test_numbers() -> None:
    assert words.signed(-0.01234, 3) == "−0.012"
    assert words.signed(0.01234, 3) == "+0.012"
    assert words.signed(-0.0001, 3) == "0.000"
    assert [words.count(n) for n in (0, 512, 5_801_234, 2.3e9)] == ["0", "512", "5.80 M", "2.30 G"]
    assert words.large(1e13) == "1.00 × 10¹³"
    assert [words.size(n) for n in (12, 2048, 1.5 * 2**20, 3 * 2**30)] == ["12 B", "2.00 KiB", "1.50 MiB", "3.00 GiB"]
    assert words.p_value(0.00001) == "p < 0.0001"
    assert words.moment("2026-01-01T01:30:00+01:00") == "2026-01-01 00:30 UTC"


def test_a_baseline_alone_is_no_result(tmp_path: Path) -> None:
    """Nor does it read as a finding that its arms have no verdict."""
    study = StudyOf([Arm("base", [2.4, 2.41]), Arm("arm", [None, None]), Arm("other", [None, None])], measured=False)
    said = answers.headline(reports.summarise(study.write(tmp_path)))
    assert said == "No result yet: only runs of base, the baseline, have ended."


def test_ratios() -> None:
    assert cost_words.speed_change(measured([0.96, 0.97, 0.98])) == "3 % slower"
    assert cost_words.speed_change(measured([0.8])) == "no measurable change in speed", "measured once"
    assert cost_words.speed_change(measured([0.862, 0.863, 0.864])) == "14 % slower"  # which is 16 % more time
    slower = measured([1 / 0.862, 1 / 0.863, 1 / 0.864])
    assert cost_words.change_of("training time per token", slower) == "training 14 % slower"
    assert cost_words.change_of("training time per token", measured([1.07])).startswith("no measurable change")
    assert cost_words.memory_change(measured([0.93])) == "no measurable change in peak memory"
    assert cost_words.speed_change(measured([1.10, 1.11, 1.12])) == "11 % faster"
    assert cost_words.speed_change(measured([0.9, 1.2])) == "no measurable change in speed"
    assert cost_words.speed_change(measured([0.9995, 1.0005])) == "the same speed"
    assert cost_words.bytes_change(0.25) == "4× smaller KV cache"
    assert cost_words.bytes_change(1.0) == "the same KV cache"
    assert cost_words.memory_change(measured([0.80, 0.81, 0.79])) == "20 % less peak memory"
    assert cost_words.memory_change(measured([1.004])) == "the same peak memory"


def test_scores() -> None:
    assert words.score(0.59375) == "0.5938"
    assert words.score(-12345.6) == "-12345.6000"
    assert words.score(2.910911763620949e22) == "2.911e+22"


def test_sentences_of_a_study(tmp_path: Path) -> None:
    summary = reports.summarise(typical(4).write(tmp_path))
    assert finding_words.headline(summary) == (
        "At equal FLOPs, pre (−0.090 ± 0.024 nats, training 2 % faster, decoding 2 % faster) reached a lower loss "
        "than post; double (+0.001 ± 0.025 nats) is inconclusive against post (750 k parameters, "
        "5.3 tokens per parameter, learning rates not tuned)."
    )
    post, pre, double = (finding_words.sentence(summary, arm) for arm in summary.arms)
    assert post == "the baseline: 2.401 ± 0.026 nats per token (95 % interval over 3 seeds)."
    assert pre.startswith(
        "−0.090 ± 0.024 nats at equal FLOPs, training 2 % faster, decoding 2 % faster; better (3 seeds, p"
    )
    assert double.startswith(
        "+0.001 ± 0.025 nats at equal FLOPs, training 3 % slower, decoding 3 % slower, 15 % more peak memory, "
        "2× smaller KV cache; inconclusive"
    )
    assert (
        "p > 0.99): excludes differences larger than 0.026 nats; could detect 0.033 (0.025 to 0.052) nats with 80 %"
        in double
    )
    assert double.endswith("power.")  # seeds that nobody planned settle nothing
    noise = method_words.noise(summary)
    assert noise.startswith("Seed noise, as a standard deviation over seeds: 0.0096 nats for the loss, ")
    assert noise.endswith(
        "Four of five such studies would find a difference of between 0.032 (0.021 to 0.066) nats and 0.033 (0.025 to "
        "0.052) nats, depending on the arm; smaller ones are found less often."
    )


@pytest.mark.parametrize(
    ("arm", "said"),
    [
        (Arm("arm", [2.3], steps=4), "cannot tell with 1 seed."),
        (Arm("arm", [None, 2.3], steps=4), "no seed trained in both arm and base."),
        (Arm("arm", [9.9], steps=4, diverged=[0]), "its only seed diverged."),
    ],
)
def test_sentences_without_enough_seeds(tmp_path: Path, arm: Arm, said: str) -> None:
    summary = reports.summarise(StudyOf([Arm("base", [2.4], steps=4), arm]).write(tmp_path))
    assert said in finding_words.sentence(summary, summary.arms[1])


def test_a_win_that_a_diverged_seed_spoils_says_so(tmp_path: Path) -> None:
    base = Arm("base", [2.400, 2.412, 2.391, 2.403], steps=4)
    arm = Arm("arm", [2.300, 2.313, 2.290, 9.9], steps=4, diverged=[3])
    summary = reports.summarise(StudyOf([base, arm]).write(tmp_path))
    assert finding_words.sentence(summary, summary.arms[1]).endswith("because 1 of 4 seeds of arm diverged.")


def test_closing_table(tmp_path: Path) -> None:
    header, post, _, double = reports.table(reports.summarise(typical(4).write(tmp_path)))
    assert header[0] == "arm"
    assert post == ("post", "2.401 ± 0.026", "–", "1.801 ± 0.020", "4,000", "201 MiB", "2,048", "baseline")
    assert double[-2:] == ("1,024", "inconclusive")
