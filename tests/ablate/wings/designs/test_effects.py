"""Effects of a factorial design, from stored runs to the page: against a regression, and never 8 arms against one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import reports
from ablate.wings.designs.asked import design_document
from ablate.wings.designs.design_spec import DesignSpec, Screen, screen
from ablate.wings.science.judging_claims import judge_claims
from reports.judge.findings.study_summary import EffectSummary, StudySummary
from reports.judge.findings.summary import open_arms
from reports.judge.statistics.ledger import FIRST_SHARE
from reports.page.html.page import record, render_page
from reports.page.html.ranking import ranked
from reports.page.wording import answers
from store import Store
from store.documents import StudyClaim, StudyDesign, StudyTrial, StudyTuning
from tests.regression import Regression, holm
from tests.reports.factory import Arm, StudyOf

FACTORS = ("gated", "double", "gqa", "nope")
SEEDS = 3
STRENGTHS = {"gated": -0.04, "nope": 0.05}


def plan(correction: str = "holm", interactions: Sequence[str] = ("gated × gqa",)) -> Screen:
    spec = {"factorial": 8, "interactions": list(interactions), "correction": correction}
    return screen(DesignSpec.model_validate(spec), FACTORS)


def losses(of: Screen, noise: float = 0.01) -> np.ndarray:
    """(runs, seeds), with effects of two factors and what each seed does to all runs."""
    draw = np.random.default_rng(0)
    effects = of.design.levels @ [STRENGTHS.get(factor, 0.0) / 2 for factor in of.design.factors]
    return np.asarray(
        2.3 + effects[:, None] + draw.normal(0, 0.1, SEEDS) + draw.normal(0, noise, (len(of.runs), SEEDS))
    )


def study_of(of: Screen, values: np.ndarray, **more: object) -> StudyOf:
    names = ["+".join(run) or "base" for run in of.runs]
    arms = [Arm(name, row.tolist()) for name, row in zip(names, values, strict=True)]
    plain = StudyOf(arms=arms, name="screen", measured=False)
    design: StudyDesign = design_document(of, plain.document().arms)
    return StudyOf(arms=arms, name="screen", measured=False, design=design, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Screen, StudySummary]:
    of = plan()
    return of, reports.summarise(study_of(of, losses(of)).write(tmp_path_factory.mktemp("store")))


def by_name(summary: StudySummary) -> dict[str, EffectSummary]:
    return {each.effect.name: each for each in summary.effects}


def test_claims_of_a_design_name_its_factors(found: tuple[Screen, StudySummary]) -> None:
    _, summary = found
    stated = [("gated", "better", "loss"), ("nope", "better", "loss"), ("double", "better", "loss")]
    stated += [("gqa", "same", "kv_bytes"), ("gqa", "better", "accuracy"), ("gqa", "better", "decode_time")]
    claims = tuple(
        StudyClaim.model_validate({"arm": arm, "expect": expect, "measure": measure, "planned": "", "sizes": [1e6]})
        for arm, expect, measure in stated
    )
    judged = judge_claims(replace(summary, study=summary.study.model_copy(update={"claims": claims})))
    outcomes = ["holds", "does not hold", "cannot tell", "holds", "not tested", "not tested"]
    assert [each.outcome for each in judged] == outcomes, [each.reason for each in judged]
    assert judged[0].effect == by_name(summary)["gated"].comparison.difference


def test_effects_and_p_are_those_of_a_regression_with_seed_blocks(found: tuple[Screen, StudySummary]) -> None:
    """With all contrasts of the design, corrected by Holm within the first round of the ledger."""
    of, summary = found
    contrasts = [of.design.contrast(effect) for effect in of.effects]
    rest = [of.design.contrast(effect) for effect in (("gated", "double"), ("gated", "nope"))]
    columns = [np.repeat(each, SEEDS) for each in (*contrasts, *rest)]
    blocks = [np.tile(np.arange(SEEDS) == seed, 8).astype(float) for seed in range(SEEDS)]
    fit = Regression.of(losses(of).ravel(), np.column_stack([*columns, *blocks]))
    differences = [each.comparison.difference for each in summary.effects]
    assert [value and value.mean for value in differences] == pytest.approx(2 * fit.coefficients[:5])
    p_values = np.minimum(np.divide(holm(fit.p_values[:5]), FIRST_SHARE), 1)
    assert [each.comparison.p_holm for each in summary.effects] == pytest.approx(p_values)


def test_what_has_an_effect_is_named_and_its_interval_excludes_zero(found: tuple[Screen, StudySummary]) -> None:
    effects = by_name(found[1])
    assert {name: each.verdict for name, each in effects.items()} == {
        "gated": "better",
        "double": "inconclusive",
        "gqa": "inconclusive",
        "nope": "worse",
        "gated × gqa": "inconclusive",
    }
    for each in effects.values():
        value = each.comparison.difference
        assert value is not None
        assert value.excludes(0) == (each.verdict in ("better", "worse"))


def test_the_answer_speaks_of_effects(found: tuple[Screen, StudySummary]) -> None:
    _, summary = found
    assert answers.headline(summary).startswith("gated lowers the loss by 0.039 nats (")
    assert "; nope is 0.050 worse" in answers.headline(summary)
    said = answers.in_full(summary)
    assert said.startswith("At equal FLOPs, with 4 factors in 8 combinations, gated (−0.0")
    assert "lowers the loss; nope (+0.0" in said
    assert [row[0] for row in reports.table(summary)[1:]] == [*FACTORS, "gated × gqa"]
    assert by_name(summary)["gated × gqa"].effect.aliases == (("double", "nope"),)
    assert "cannot distinguish it from double × nope" in next(
        each.sentence for each in answers.findings(summary) if each.name == "gated × gqa"
    )
    page = render_page(summary)
    assert [row.name for row in ranked(summary).rows][:: len(summary.effects) - 1] == ["gated", "nope"]
    assert "gated: inconclusive" not in page
    assert "confirm gated with fresh seeds" in page
    assert {arm.verdict for arm in summary.arms} == {"baseline", "not compared"}


def test_a_factor_is_explained_by_its_edits_and_costs_what_it_multiplies(tmp_path: Path) -> None:
    """Half the cache for `gqa`, twice for `nope`, four fifths of the speed for `gated`: by all runs, of which none has
    a factor alone."""
    of = plan()
    study = study_of(of, losses(of))
    parts = [set(run) for run in of.runs]
    arms = [
        replace(
            arm,
            edits={f"block.{factor}": [factor, 1] for factor in FACTORS if factor in has},
            kv_bytes_per_token=2048.0 * 0.5 ** ("gqa" in has) * 2 ** ("nope" in has),
            speed=4000.0 * 0.8 ** ("gated" in has),
        )
        for arm, has in zip(study.arms, parts, strict=True)
    ]
    summary = reports.summarise(replace(study, arms=arms, measured=True).write(tmp_path))
    ratios = {name: each.comparison.costs.kv_ratio for name, each in by_name(summary).items()}
    assert ratios.pop("gated × gqa") is None
    assert ratios == pytest.approx({"gated": 1, "double": 1, "gqa": 0.5, "nope": 2})
    speeds = {name: each.comparison.costs.training for name, each in by_name(summary).items()}
    assert speeds.pop("gated × gqa") is None
    assert {name: ratio.mean for name, ratio in speeds.items() if ratio} == pytest.approx(
        {"gated": 0.8, "double": 1, "gqa": 1, "nope": 1}
    )
    assert [name for name, ratio in speeds.items() if ratio and ratio.excludes(1)] == ["gated"]
    found = list(answers.findings(summary))
    assert [each.name for each in found[:2]] == ["gated", "nope"]
    assert {each.name: each.gloss for each in found} == {
        **{factor: f"{factor}=[{factor}, 1]" for factor in FACTORS},
        "gated × gqa": "",
    }
    figure = ranked(summary)
    cells = {(row.name, cost.key): figure.cell(row, cost) for row in figure.rows for cost in figure.columns}
    assert {cost.key for cost in figure.columns} == {"training-time", "decode-time", "kv"}
    assert (cells["gqa", "kv"].text, cells["gqa", "kv"].kind) == ("0.50×", "cheaper")
    assert (cells["nope", "kv"].text, cells["nope", "kv"].kind) == ("2.00×", "dearer")
    assert (cells["gated", "training-time"].text, cells["gated", "training-time"].kind) == ("1.25×", "dearer")
    assert cells["gated × gqa", "kv"] is None


def test_the_ledger_counts_effects_and_a_second_look_is_corrected(tmp_path: Path) -> None:
    of = plan()
    folder = study_of(of, losses(of)).write(tmp_path)
    store = Store(tmp_path)
    record(reports.summarise(folder), store)
    [judged] = store.read_ledger("screen")
    assert [test.arm for test in judged.tests] == [*FACTORS, "gated × gqa"]
    record(reports.summarise(folder), store)
    assert len(Store(tmp_path).read_ledger("screen")) == 1
    other = plan(interactions=())
    smaller = study_of(other, losses(other)[:, :2]).write(tmp_path)
    assert {each.verdict for each in reports.summarise(smaller).effects} == {"no verdict"}, "seeds judged before"


def test_a_run_that_is_missing_withholds_every_effect(tmp_path: Path) -> None:
    of = plan()
    study = study_of(of, losses(of))
    study.arms[3].losses[1] = None  # type: ignore[index]
    summary = reports.summarise(study.write(tmp_path))
    assert {each.verdict for each in summary.effects} == {"no verdict"}
    assert {each.comparison.seeds for each in summary.effects} == {(0, 2)}
    assert "; estimate for gated, the most favourable of 5 effects: " in answers.headline(summary)


def test_benjamini_and_hochberg_where_asked(tmp_path: Path) -> None:
    of = plan("benjamini_hochberg")
    summary = reports.summarise(study_of(of, losses(of)).write(tmp_path))
    plain = [each.comparison.test.p for each in summary.effects if each.comparison.test]
    # Benjamini and Hochberg 1995: the least m·p₍ⱼ₎/j over j ≥ i
    order = np.argsort(plain)
    steps = np.array(plain)[order] * len(plain) / np.arange(1, len(plain) + 1)
    expected = np.empty(len(plain))
    expected[order] = np.minimum(np.minimum.accumulate(steps[::-1])[::-1] / FIRST_SHARE, 1)
    assert [each.comparison.p_holm for each in summary.effects] == pytest.approx(expected)


def test_rounds_of_seeds_go_on_for_all_runs_while_an_effect_is_open(tmp_path: Path) -> None:
    of = plan()
    looks = [{"seeds": 3, "alpha": 0.025}, {"seeds": 5, "alpha": 0.025}]
    summary = reports.summarise(study_of(of, losses(of), looks=looks).write(tmp_path))
    assert set(open_arms(summary)) == {arm.name for arm in summary.arms} - {"base"}
    p = [each.comparison.test.p for each in summary.effects if each.comparison.test]
    alone = reports.summarise(study_of(of, losses(of)).write(tmp_path / "fixed"))
    assert p == pytest.approx([min(1, 2 * t.comparison.test.p) for t in alone.effects if t.comparison.test])  # type: ignore[operator]


def test_effects_of_tuned_runs_are_judged_by_the_contrasts_without_an_effect(tmp_path: Path) -> None:
    """A regression of the means of runs, which differ by what tuning got wrong as well."""
    of = screen(DesignSpec(factorial="full"), FACTORS)
    values = losses(of) + np.random.default_rng(1).normal(0, 0.02, (16, 1))
    trials = tuple(StudyTrial(settings={"train.lr": lr}, losses=(2.5,), runs=("t",)) for lr in (1e-3, 2e-3))
    tuned = StudyTuning(
        fraction=1.0,
        trials=trials,
        arm="base",
        chosen={"train.lr": 1e-3},
        edges=(),
        curve=(),
        reason=None,
        coarse=(),
    )
    summary = reports.summarise(study_of(of, values, tuning=(tuned,)).write(tmp_path))
    contrasts = [of.design.contrast(each) for each in of.effects]
    fit = Regression.of(values.mean(axis=1), np.column_stack([np.ones(16), *contrasts]))
    tests = [each.comparison.test for each in summary.effects]
    assert [test and test.p for test in tests] == pytest.approx(fit.p_values[1:])


def test_a_run_that_diverged_keeps_its_factors_from_being_better(tmp_path: Path) -> None:
    of = plan()
    study = study_of(of, losses(of))
    place = next(i for i, arm in enumerate(study.arms) if "gated" in arm.name)
    arms = list(study.arms)
    arms[place] = Arm(arms[place].name, arms[place].losses, diverged=(2,))
    summary = reports.summarise(StudyOf(arms=arms, name="screen", measured=False, design=study.design).write(tmp_path))
    assert {each.comparison.seeds for each in summary.effects} == {(0, 1)}
    assert by_name(summary)["gated"].verdict != "better"
