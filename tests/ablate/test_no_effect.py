"""Whole toy studies: an edit without an effect seldom wins, and pairing the seeds narrows the interval."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import ablate
import zoo
from ablate.running.stages import StudyRunner
from ablate.study.tune_spec import TuneSpec
from store import Store
from tests.ablate.toy import run_toy, toy_study

NO_EFFECT = "{twin: {init.stream: 1}}"


def test_a_stream_is_another_draw_from_the_same_distribution():
    first, same, other = (
        zoo.build(zoo.load("small", d_model=64, n_layers=2, **{"init.stream": stream}), seed=3) for stream in (0, 0, 1)
    )
    pairs = zip(*(dict(model.named_parameters()).items() for model in (first, same, other)), strict=True)
    for (name, a), (_, b), (_, c) in pairs:
        assert (a == b).all()
        if a.std() == 0:
            assert (a == c).all(), name
            continue
        assert abs(np.corrcoef(a.detach().ravel(), c.detach().ravel())[0, 1]) < 5 / np.sqrt(a.numel()), name
        assert stats.ks_2samp(a.detach().ravel(), c.detach().ravel()).pvalue > 1e-6, name


def test_a_study_of_an_edit_without_an_effect(tmp_path: Path):
    summary = run_toy(toy_study(tmp_path, NO_EFFECT, steps=4), Store(tmp_path / "runs"), seeds=[5, 9])
    base, twin = summary.arms
    assert base.seeds == twin.seeds == (5, 9)
    assert all(value != 0 for value in twin.comparison.difference.values)
    assert twin.comparison.p_holm == pytest.approx(min(1.0, twin.comparison.test.p / 0.8))


@pytest.mark.slow
def test_pairing_narrows_the_interval_of_a_real_study(tmp_path: Path):
    """Shared starts and shared batches: what a seed does to one arm it does to the other too."""
    base, geglu = run_toy(toy_study(tmp_path, "{geglu: {block.ffn: geglu}}"), Store(tmp_path / "runs"), range(8)).arms
    assert stats.pearsonr(base.loss.values, geglu.loss.values, alternative="greater").pvalue < 0.001
    paired = geglu.comparison.difference
    unpaired = stats.ttest_ind(geglu.loss.values, base.loss.values, equal_var=False).confidence_interval(0.95)
    assert paired.sd < np.hypot(base.loss.sd, geglu.loss.sd) / 3
    assert paired.high - paired.low < (unpaired.high - unpaired.low) / 3


def test_losses_that_were_shown_before_an_interruption_choose_no_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, run = toy_study(tmp_path, NO_EFFECT, steps=4), StudyRunner.run

    def interrupted(runner: StudyRunner) -> None:
        run(runner)
        raise KeyboardInterrupt

    def asked(seeds: list[int]) -> list[str]:
        given = {"scale": "cpu", "store": tmp_path / "runs", "engine": "inprocess", "progress": False}
        return ablate.run(path, sets={"seeds": seeds}, **given).contrasts["verdict"].to_list()

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(StudyRunner, "run", interrupted)
        asked([0, 1, 2, 3])
    assert asked([0, 2]) == ["no verdict"]
    assert asked([0, 1, 2, 3])[0] in {"inconclusive", "better", "worse"}


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("twins", [1, 3])
def test_two_hundred_studies_without_an_effect_seldom_name_a_winner(twins: int, tmp_path: Path) -> None:
    """At a true rate of 5 % or less, more studies with a winner than a one-sided binomial test at 1 % allows (18) are a
    fault."""
    studies, seeds = 200, 3
    arms = ", ".join(f"twin{each}: {{init.stream: {each}}}" for each in range(1, twins + 1))
    path, store = toy_study(tmp_path, f"{{{arms}}}"), Store(tmp_path / "runs")
    known, winners = set(), 0
    for study in range(studies):
        summary = run_toy(path, store, range(seeds * study, seeds * (study + 1)))
        verdicts = {arm.verdict for arm in summary.arms[1:]}
        known |= verdicts
        winners += bool(verdicts & {"better", "worse"})
        print(f"{winners} of {study + 1} studies named a winner", flush=True)
    assert known <= {"inconclusive", "better", "worse"}
    assert stats.binomtest(winners, studies, 0.05, alternative="greater").pvalue > 0.01


@pytest.mark.slow
@pytest.mark.timeout(14400)
def test_four_hundred_studies_that_tune_and_have_no_effect_seldom_name_a_winner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each arm of each study tunes its own rate on seeds of its own. The bound is as above, of 400: 31 winners. Runs
    are so short that some stall: where two seeds of an arm do there is nothing to tell, and where all do the page says
    so of that arm, which counts as naming a winner."""
    studies, seeds, tuning = 400, 3, TuneSpec().seeds
    path, store = toy_study(tmp_path, NO_EFFECT, steps=16, tune="auto"), Store(tmp_path / "runs")
    verdicts = []
    for study in range(studies):
        monkeypatch.setattr("ablate.study.tune_spec.FIRST_SEED", 10_000 + tuning * study)
        summary = run_toy(path, store, range(seeds * study, seeds * (study + 1)))
        verdicts.append(summary.arms[1].verdict)
        winners = sum(verdict in {"better", "worse", "stalled"} for verdict in verdicts)
        print(f"{winners} of {study + 1} tuned studies named a winner", flush=True)
    assert set(verdicts) <= {"inconclusive", "better", "worse", "cannot tell", "stalled"}
    assert stats.binomtest(winners, studies, 0.05, alternative="greater").pvalue > 0.01
