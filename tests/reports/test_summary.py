"""Summaries of synthetic studies, against numbers worked out by hand or by scipy."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import reports
from reports.judge.findings.study_summary import ArmSummary, StudySummary
from reports.page.figures.drawing import looks
from reports.page.sections import difference_curves
from reports.page.sections.difference_curves import DifferenceCurves
from reports.page.sections.losses import Losses
from reports.page.wording import finding_words
from reports.page.wording.tables import ARM_MEASURES
from store import Store, StoreError
from store.errors import ReportError
from tests.documents import quartiles
from tests.moderated import moderated
from tests.regression import holm
from tests.reports.factory import Arm, StudyOf, arm_documents, changed, shown, typical


def summary_of(study: StudyOf, root: Path) -> StudySummary:
    return reports.summarise(study.write(root))


def arm_of(summary: StudySummary, name: str) -> ArmSummary:
    return next(arm for arm in summary.arms if arm.name == name)


def pair(base: list[float | None], arm: list[float | None], **kwargs: Any) -> StudyOf:
    return StudyOf([Arm("base", base, steps=4), Arm("arm", arm, steps=4)], measured=False, **kwargs)


def test_estimates_are_those_of_scipy_and_differences_those_of_moderated_variances(tmp_path: Path) -> None:
    summary = summary_of(typical(4), tmp_path)
    base, pre = np.array([2.400, 2.412, 2.391]), np.array([2.310, 2.324, 2.299])
    arm = arm_of(summary, "pre")
    assert arm.loss is not None
    assert arm.comparison is not None
    assert arm.comparison.difference is not None
    half = stats.t.ppf(0.975, 2) * stats.sem(pre)
    assert arm.loss.mean == pytest.approx(2.311)
    assert (arm.loss.low, arm.loss.high) == pytest.approx((2.311 - half, 2.311 + half))
    losses = {"post": base.tolist(), "pre": pre.tolist(), "double": [2.402, 2.405, 2.399]}
    expected, other = (moderated(losses, name, "post") for name in ("pre", "double"))
    low, high = expected.interval(0.04 / 2)
    assert arm.comparison.difference.mean == pytest.approx(-0.09)
    assert arm.comparison.difference.low == pytest.approx(low)
    assert arm.comparison.difference.high == pytest.approx(high)
    assert arm.comparison.test is not None
    assert arm.comparison.test.p == pytest.approx(expected.p)
    assert arm.comparison.p_holm == pytest.approx(holm([expected.p, other.p])[0] / 0.8)


def test_verdicts_costs_and_noise(tmp_path: Path) -> None:
    summary = summary_of(typical(4), tmp_path)
    assert [arm.verdict for arm in summary.arms] == ["baseline", "better", "inconclusive"]
    double = arm_of(summary, "double").comparison
    assert double is not None
    assert double.costs.training is not None
    assert double.costs.memory is not None
    assert double.costs.training.mean == pytest.approx(3880 / 4000)
    assert double.costs.memory.mean == pytest.approx(231 / 201, rel=1e-3)
    assert double.costs.kv_ratio == 0.5
    losses = [[2.400, 2.412, 2.391], [2.310, 2.324, 2.299], [2.402, 2.405, 2.399]]
    assert summary.noise.loss_sd == pytest.approx(np.sqrt(np.var(losses, axis=1, ddof=1).mean()))
    paired = np.array(losses[1:]) - np.array(losses[0])
    assert summary.noise.difference_sd == pytest.approx(np.sqrt(np.var(paired, axis=1, ddof=1).mean()))


def test_pairing_sees_what_seed_noise_hides(tmp_path: Path) -> None:
    """Seeds scatter by 0.1, yet every seed says the same of the arm."""
    base, arm = [2.3, 2.5, 2.4, 2.42, 2.36], [2.311, 2.510, 2.409, 2.429, 2.371]
    found = arm_of(summary_of(pair(base, arm), tmp_path), "arm")
    assert found.verdict == "worse"
    assert found.comparison is not None and found.comparison.test is not None
    assert found.comparison.test.p == pytest.approx(moderated({"base": base, "arm": arm}, "arm", "base").p)


def test_seeds_are_paired_by_seed_not_by_place(tmp_path: Path) -> None:
    """Seed 0 is missing in one arm: what is left are the pairs of seeds 1, 2 and 3."""
    summary = summary_of(pair([9.0, 2.5, 2.4, 2.3], [None, 2.6, 2.4, 2.35]), tmp_path)
    found = arm_of(summary, "arm")
    assert found.comparison is not None
    assert found.comparison.difference is not None
    assert found.comparison.seeds == (1, 2, 3) == found.seeds
    assert found.comparison.difference.values == pytest.approx((0.1, 0.0, 0.05))
    assert found.missing == (0,)
    assert any("arm: 1 of 4 runs have no result (seed 0)" in text for text in summary.warnings)


def test_one_seed_cannot_tell(tmp_path: Path) -> None:
    summary = summary_of(pair([2.4], [1.9]), tmp_path)
    arm = arm_of(summary, "arm")
    assert arm.verdict == "cannot tell"
    assert arm_documents(summary)[1]["loss"] == 1.9
    assert arm_documents(summary)[1]["loss_interval"] is None
    assert summary.noise.loss_sd is None
    assert any("One seed per arm" in text for text in summary.warnings)


def test_seeds_that_do_not_scatter_cannot_tell(tmp_path: Path) -> None:
    assert arm_of(summary_of(pair([2.5, 2.5], [2.25, 2.25]), tmp_path), "arm").verdict == "cannot tell"


def test_diverged_seeds_are_counted_and_forbid_a_win(tmp_path: Path) -> None:
    base: list[float | None] = [2.400, 2.412, 2.391, 2.403]
    study = StudyOf(
        [
            Arm("base", base, steps=4),
            Arm("shaky", [2.300, 2.313, 2.290, 9.9], steps=4, diverged=[3]),
            Arm("broken", [9.9, 9.9, 9.9, 9.9], steps=4, diverged=[0, 1, 2, 3]),
        ]
    )
    summary = summary_of(study, tmp_path)
    shaky, broken = arm_of(summary, "shaky"), arm_of(summary, "broken")
    assert shaky.comparison is not None
    assert shaky.comparison.p_holm == 1.0
    assert shaky.comparison.is_barred
    assert shaky.comparison.difference is not None
    assert shaky.comparison.difference.mean == pytest.approx(np.mean([2.300, 2.313, 2.290]) - np.mean(base))
    assert shaky.comparison.difference.high == np.inf
    assert (shaky.verdict, shaky.seeds, shaky.diverged) == ("inconclusive", (0, 1, 2), (3,))
    assert (broken.verdict, broken.loss, broken.seeds) == ("diverged", None, ())
    assert any("shaky: 1 of 4 seeds diverged (seed 3: loss is NaN at step 7)" in text for text in summary.warnings)
    assert any("broken: 4 of 4 seeds diverged" in text for text in summary.warnings)


def test_an_arm_is_not_worse_than_a_baseline_with_a_seed_that_diverged(tmp_path: Path) -> None:
    study = StudyOf(
        [
            Arm("base", [2.300, 2.313, 2.290, 9.9], steps=4, diverged=[3]),
            Arm("steady", [2.400, 2.412, 2.391, 2.403], steps=4),
        ]
    )
    summary = summary_of(study, tmp_path)
    steady = arm_of(summary, "steady")
    assert steady.comparison is not None
    assert steady.comparison.p_holm == 1.0
    assert steady.comparison.is_barred
    assert steady.comparison.difference is not None
    assert steady.comparison.difference.low == -np.inf
    assert steady.verdict == "inconclusive"
    assert finding_words.sentence(summary, steady).endswith("because 1 of 4 seeds of base diverged.")


def test_an_arm_of_which_no_seed_is_left_is_not_said_to_be_flattered(tmp_path: Path) -> None:
    study = StudyOf([Arm("base", [2.4, 2.5], steps=4), Arm("broken", [9.9, 9.9], steps=4, diverged=[0, 1])])
    assert [text for text in summary_of(study, tmp_path).warnings if "diverged" in text] == [
        "broken: 2 of 2 seeds diverged (seeds 0, 1: loss is NaN at step 7)."
    ]


def test_what_did_not_fit_in_memory_is_said_and_the_rest_is_shown(tmp_path: Path) -> None:
    study = typical(steps=4)
    folder = study.write(tmp_path)
    store, arm = Store(tmp_path), study.arms[1]
    with changed(store.measure_path(study.digest(arm, 0), "m1")) as document:
        for kind in ("cache", "decode"):
            document[kind][-1] = {"context": 256, "batch": 8, "reason": "out of memory: it is too long"}
    warnings = reports.summarise(folder).warnings
    expected = "not measured at context 256, batch 8 (out of memory: it is too long)"
    assert [w for w in warnings if "measured" in w] == [f"{arm.name}: {k} was {expected}." for k in ("cache", "decode")]
    assert reports.render(folder).exists()


def test_a_score_that_a_seed_lacks_has_no_mean(tmp_path: Path) -> None:
    study = typical(steps=4)
    folder = study.write(tmp_path)
    store, arm = Store(tmp_path), study.arms[1]
    with changed(store.evals_path(study.digest(arm, 0), "e1")) as document:
        document["scores"]["heldout_pairs"]["acc"]["value"] = None
    found = arm_documents(reports.summarise(folder))[1]["evals"]
    assert found["heldout_pairs"]["acc"] == {"value": None, "stderr": None, "half_width": None}
    assert found["heldout_text"]["bits_per_byte"]["value"] > 0
    assert reports.render(folder).exists()


def test_arms_whose_names_begin_and_end_alike_have_labels_of_their_own() -> None:
    names = [f"post+warmup={x}+lr=0.001+weight_decay=0.1" for x in (0.1, 0.2)]
    other = "post+warmup=0.1+lr=0.001+weight_decay=0.2"
    assert len({look.label for look in looks([*names, other]).values()}) == 3


def test_runs_on_different_data_are_refused(tmp_path: Path) -> None:
    study = pair([2.4, 2.5], [2.3, 2.4], identities={("arm", 1): {"data": {"digest": "other"}}})
    with pytest.raises(ReportError, match="data0, other"):
        summary_of(study, tmp_path)


@pytest.mark.parametrize(
    ("results", "identities", "said"),
    [
        ({"environment": {"device": "another"}}, {}, "differ in device (a CPU, another)"),
        ({"environment": {"torch": "2.11.0"}}, {}, "differ in torch (2.11.0, 2.13.0)"),
        ({"environment": {"git_dirty": True}}, {}, "uncommitted changes"),
        ({"environment": {"git_commit": None}}, {}, "unknown)"),
        ({}, {"numerics": {"dtype": "bfloat16"}}, "differ in dtype (bfloat16, float32)"),
    ],
)
def test_unlike_machines_and_versions_are_warned_of(
    tmp_path: Path, results: dict[str, Any], identities: dict[str, Any], said: str
) -> None:
    assert summary_of(pair([2.4, 2.5, 2.45], [2.3, 2.4, 2.4]), tmp_path / "alike").warnings == ()
    study = pair([2.4, 2.5, 2.45], [2.3, 2.4, 2.4], results={("arm", 1): results}, identities={("arm", 1): identities})
    (warning,) = summary_of(study, tmp_path / "unlike").warnings
    assert said in warning


@pytest.mark.parametrize(
    ("slowed_by", "said"),
    [
        (
            {"heat": 0.4},
            ("The GPU was throttled in 1 run (heat, up to 40 % of the time): its speeds",),
        ),
        ({"power limit": 0.9, "heat": 0.01}, ()),
    ],
)
def test_a_gpu_that_heat_slows_is_warned_of(tmp_path: Path, slowed_by: dict[str, float], said: tuple[str, ...]) -> None:
    clock, power = (quartiles(value).model_dump() for value in (1400.0, 650.0))
    state = {"clock_mhz": clock, "power_watts": power, "celsius": 87.0, "samples": 50, "slowed_by": slowed_by}
    results = {("arm", 1): {"gpu": state}}
    found = summary_of(pair([2.4, 2.5, 2.45], [2.3, 2.4, 2.4], results=results), tmp_path).warnings
    assert len(found) == len(said)
    assert all(warning.startswith(words) for warning, words in zip(found, said, strict=True))


@pytest.mark.parametrize(("published", "shown"), [(None, "10.0 %"), (4e9, "10.0 % (6.0 % of the data sheet's)")])
def test_utilisation_is_of_what_was_measured_and_of_what_is_published(published: float | None, shown: str) -> None:
    means = {"matmul_flops_per_second": 2.4e9, "published_flops_per_second": published}
    spread = {name: SimpleNamespace(mean=value) for name, value in means.items() if value is not None}
    arm = SimpleNamespace(training_speed=40.0, planned=SimpleNamespace(flops_per_token=6e6), means=spread)
    assert ARM_MEASURES["model FLOP utilisation"](arm) == shown  # type: ignore[arg-type]


def test_unequal_budgets_are_warned_of(tmp_path: Path) -> None:
    arms = [Arm("base", [2.4, 2.5, 2.45], steps=100), Arm("arm", [2.3, 2.4, 2.4], steps=110)]
    (warning,) = summary_of(StudyOf(arms), tmp_path).warnings
    assert warning == "arm: flops differ from the baseline's by +10.0 %."


def test_few_seeds_are_warned_of(tmp_path: Path) -> None:
    (warning,) = summary_of(pair([2.4, 2.5, 2.45], [2.3, None, 2.4]), tmp_path / "gap").warnings[1:]
    assert warning.startswith("arm: fewer than 3 finished seeds.")
    (warning,) = summary_of(pair([2.4, 2.5], [2.3, 2.4]), tmp_path / "two").warnings
    assert warning.startswith("base, arm: fewer than 3 finished seeds.")


def test_a_cache_that_allocates_otherwise_than_declared_is_warned_of(tmp_path: Path) -> None:
    study = typical(4)
    folder = study.write(tmp_path)
    store, digest = Store(tmp_path), study.digest(study.arms[1], 0)
    with changed(store.measure_path(digest, "m1")) as document:
        document["cache"][0]["allocated_bytes"] *= 2
    (warning,) = reports.summarise(folder).warnings
    assert warning == ("pre: the cache declared 131,072 bytes at context 64, batch 1, but allocated 262,144.")


def test_nothing_trained_yet(tmp_path: Path) -> None:
    summary = summary_of(pair([None, None], [None, None]), tmp_path)
    assert [arm.verdict for arm in summary.arms] == ["baseline", "no verdict"]
    assert summary.runs["status"].to_list() == ["absent"] * 4
    assert len(summary.warnings) == 2


def test_half_written_results_are_not_results(tmp_path: Path) -> None:
    study = pair([2.4, 2.5, 2.6], [2.3, 2.4, 2.5])
    folder = study.write(tmp_path)
    Store(tmp_path).result_path(study.digest(study.arms[1], 2)).write_text('{"schema": 1, "dig')
    arm = arm_of(reports.summarise(folder), "arm")
    assert (arm.seeds, arm.missing) == ((0, 1), (2,))


def test_foreign_schemas_and_missing_studies_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="no study"):
        reports.summarise(tmp_path)
    study = pair([2.4], [2.3])
    folder = study.write(tmp_path)
    Store(tmp_path).result_path(study.digest(study.arms[0], 0)).write_text('{"schema": 99}')
    with pytest.raises(StoreError, match="99"):
        reports.summarise(folder)


def test_arm_documents_are_what_run_json_promises(tmp_path: Path) -> None:
    documents = arm_documents(summary_of(typical(4), tmp_path))
    assert json.loads(json.dumps(documents, allow_nan=False)) == documents
    promised = (
        "name edits tuned matching seeds stalled diverged loss loss_interval bits_per_byte accuracy "
        "accuracy_interval excess tokens_per_second peak_memory_bytes costs "
        "kv_bytes_per_token parameters flops_per_token evals verdict "
        "difference difference_interval p detectable detectable_interval "
        "seeds_needed eval_differences effective_compute standing sign_kept"
    )
    assert [" ".join(document) for document in documents] == [promised] * 3
    double = documents[2]
    assert double["edits"] == {"block.residual": {"kind": "double"}}
    assert double["seeds"] == [0, 1, 2]
    assert double["tokens_per_second"] == pytest.approx(3880, rel=0.01)  # as timed beside the others, not in its runs
    speed = double["costs"]["training_speed"]
    assert speed["ratio"] == pytest.approx(3880 / 4000)
    assert speed["interval"][0] < 3880 / 4000 < speed["interval"][1]
    assert double["costs"]["unmeasured"] is None
    score = double["evals"]["heldout_pairs"]["acc"]
    assert score["value"] == pytest.approx(0.61)
    assert score["stderr"] == pytest.approx(np.sqrt(0.02**2 + 0.01**2 / 3))
    items, seeds = stats.norm.ppf(0.975) * 0.02, stats.t.ppf(0.975, 2) * 0.01 / np.sqrt(3)
    assert score["half_width"] == pytest.approx(np.hypot(items, seeds))


def test_curves_average_seeds_and_end_at_the_result(tmp_path: Path) -> None:
    summary = summary_of(typical(400), tmp_path)
    validation = next(c for c in shown(summary, Losses).curves if (c.arm, c.kind) == ("pre", "validation"))
    assert (validation.points[0].x, validation.points[-1].x) == (0, 400)
    last = validation.points[-1]
    assert (last.mean, last.low, last.high) == pytest.approx((2.311, 2.299, 2.324))
    train = next(c for c in shown(summary, Losses).curves if (c.arm, c.kind) == ("pre", "train"))
    assert len(train.points) == 100
    assert train.points[0].x == pytest.approx(2.5)  # the mean of steps 1, 2, 3, 4
    coarse = next(c for c in shown(summary, Losses).curves if (c.arm, c.kind) == ("pre", "train, coarse"))
    assert len(coarse.points) == 20
    fine = [point.mean for point in train.points]
    assert coarse.points[3].mean == pytest.approx(np.mean(fine[15:20]))
    difference = next(c for c in shown(summary, DifferenceCurves).curves if c.arm == "pre")
    assert (difference.points[0].x, difference.points[-1].x) == (0, 1)
    assert difference.points[-1].mean == pytest.approx(-0.09)


def test_seeds_have_lines_of_their_own_unless_they_are_a_cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = summary_of(StudyOf([Arm(name, [2.4, 2.4, 2.5]) for name in ("base", "other")]), tmp_path)
    (few,) = shown(summary, DifferenceCurves).figures(summary, looks(["base", "other"]))
    monkeypatch.setattr(difference_curves, "MOST_SEEDS", 2)
    (many,) = shown(summary, DifferenceCurves).figures(summary, looks(["base", "other"]))
    assert len(few.drawing.data) - len(many.drawing.data) == 3
    assert "Thin lines" in few.note and "Thin lines" not in many.note


def test_differences_compare_equal_shares_of_training(tmp_path: Path) -> None:
    """The same curve over half as many steps differs by nothing, wherever both were validated."""
    arms = [Arm("base", [2.4, 2.4], steps=40), Arm("half", [2.4, 2.4], steps=20)]
    (curve,) = shown(summary_of(StudyOf(arms), tmp_path), DifferenceCurves).curves
    assert [point.mean for point in curve.points] == pytest.approx([0.0] * len(curve.points))
