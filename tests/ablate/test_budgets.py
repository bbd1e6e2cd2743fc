"""Matched parameters against brute force over all legal values and against built models; time against a fake clock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import zoo
from ablate.data import DataIdentity
from ablate.planning.campaign import CampaignOutcome, RungStudy
from ablate.planning.make_plan import make_plan
from ablate.planning.plan import Plan, StepTime, Workload
from ablate.planning.plan_shown import matched_line, plan_json, plan_rows
from ablate.planning.study_document import study_document
from ablate.study.reading import load_study
from ablate.study.sections import ParameterMatch
from ablate.study.study import StudyError
from ablate.wings.prepare.schema import study_schema
from ablate.wings.sizing.matching import MatchError, nearest, solve
from evals.costs.machine import Speed
from store.documents import SpentBudget
from zoo.errors import SpecError

DATA = DataIdentity("d" * 32, 257, "")
STUDY = """question: Which width?
baseline: mha
base: {preset: small, d_model: 32, n_layers: 2}
arms:
  mqa: {block.mixer.kv_heads: 1}
  relu: {block.ffn: {kind: relu, d_ff: 8/3x}}
  slow: {train.lr: 1e-4}
seeds: 2
train: {context: 16, batch: 2}
budget: {flops: 1e9, parameters: block.ffn.d_ff}
tune: off
"""


def plan_of(tmp_path: Path, text: str = STUDY, *sets: str, **given: Any) -> Plan:
    path = tmp_path / "matched.yaml"
    path.write_text(text, encoding="utf-8")
    return make_plan(load_study(path, "cpu", sets), **{"identify": lambda _: DATA, **given})


def outcome_of(plan: Plan) -> CampaignOutcome:
    return CampaignOutcome((RungStudy(plan),))


def built_parameters(spec: zoo.ModelSpec) -> int:
    return sum(parameter.numel() for parameter in zoo.build(spec).parameters())


@pytest.mark.parametrize("seed", range(40))
def test_the_nearest_value_is_that_of_brute_force(seed: int) -> None:
    draw = np.random.default_rng(seed)
    step, size = int(draw.integers(1, 9)), int(draw.integers(1, 400))
    counts = np.cumsum(draw.integers(1, 50, size)) * (1 if seed % 2 else -1) + 40 * size
    values = {step * (i + 1): int(count) for i, count in enumerate(counts) if draw.random() < 0.3 or i == size // 2}
    for target in draw.integers(counts.min() - 100, counts.max() + 100, 20):
        best = min(values, key=lambda value: (abs(values[value] - target), value))
        assert nearest(values.get, int(target), step) == best


def test_an_arm_that_is_off_and_cannot_come_nearer_is_refused() -> None:
    spec = zoo.load("small", d_model=32, n_layers=2)
    params = {n: zoo.cost(spec.edit({"n_layers": n})).params for n in (2, 3)}
    with pytest.raises(MatchError, match="the nearest, 2, gives"):
        solve(spec, params[2] + (params[3] - params[2]) // 3, ParameterMatch(knob="n_layers"))


def test_what_no_value_changes_is_an_error() -> None:
    assert nearest(lambda _: None, 10) is None
    with pytest.raises(MatchError, match="does not change the parameters"):
        nearest(lambda _: 7, 10)


@pytest.mark.parametrize("knob", ["no_such", "block.ffn.no_such", "/etc/passwd", "a.b.c"])
def test_a_knob_that_no_value_makes_a_setting_is_tried_once(knob: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To say what is unknown takes longer than to build a model: a thousand values took 15 s."""
    tried = []
    edit = zoo.ModelSpec.edit
    monkeypatch.setattr(zoo.ModelSpec, "edit", lambda spec, edits: tried.append(edits) or edit(spec, edits))
    with pytest.raises(MatchError, match="unknown key"):
        solve(zoo.load("small"), 10**6, ParameterMatch(knob=knob))
    assert tried == [{knob: 1}]


@pytest.mark.parametrize(
    ("knob", "step", "edits"),
    [
        ("block.ffn.d_ff", 1, {"block.mixer.kv_heads": 1}),
        ("block.ffn.d_ff", 8, {"block.ffn": {"kind": "gelu", "d_ff": "3x"}}),
        ("d_model", 1, {"n_layers": 7}),  # legal where the heads divide it
        ("n_layers", 1, {"block.ffn.d_ff": 20}),
        ("embedding_dim", 2, {"block.mixer.kv_heads": 2}),
    ],
)
def test_solving_is_brute_force_and_counts_what_is_built(knob: str, step: int, edits: dict[str, Any]) -> None:
    base = zoo.load("small", d_model=48, n_layers=4)
    spec, target = base.edit(edits), built_parameters(base)

    def params(value: int) -> int | None:
        try:
            return zoo.cost(spec.edit({knob: value})).params
        except SpecError:
            return None

    legal = {
        value: count
        for value in range(step, 40 if knob == "n_layers" else 400, step)
        if (count := params(value)) is not None
    }
    best = min(legal, key=lambda value: (abs(legal[value] - target), value))
    match = ParameterMatch(knob=knob, step=step)
    if abs(legal[best] - target) > 0.005 * target:
        with pytest.raises(MatchError, match=rf"the nearest, {best}, gives {legal[best]:,} \("):
            solve(spec, target, match)
    else:
        solved, matching = solve(spec, target, match)
        assert matching == {knob: best}
        assert built_parameters(solved) == legal[best]


def test_arms_get_the_baselines_parameters_and_equal_flops(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    mha, mqa, relu, slow = plan.arms
    assert [arm.matched for arm in plan.arms] == ["flops and parameters"] * 4
    assert (mha.matching, slow.matching) == ({}, {})  # as near as they can be without an edit
    assert set(mqa.matching) == set(relu.matching) == {"block.ffn.d_ff"}
    assert relu.edits == {"block.ffn": {"kind": "relu", "d_ff": "8/3x"}}
    assert relu.spec.block.ffn.d_ff == relu.matching["block.ffn.d_ff"]  # type: ignore[attr-defined]
    for arm in plan.arms:
        assert built_parameters(arm.spec) == arm.parameters == zoo.cost(zoo.parse(arm.runs[0].identity.model)).params
        assert arm.differs["parameters"] == pytest.approx(100 * (arm.parameters / mha.parameters - 1))
        assert abs(arm.differs["parameters"]) <= 0.5
        assert arm.flops == pytest.approx(1e9, rel=0.5 / arm.steps)


def test_other_arms_are_the_same_runs_as_without_matching(tmp_path: Path) -> None:
    plan, alone = plan_of(tmp_path), plan_of(tmp_path, STUDY, "budget={flops: 1e9}")
    same = [arm.runs == other.runs for arm, other in zip(plan.arms, alone.arms, strict=True)]
    assert same == [True, False, False, True]


def test_non_embedding_parameters_alone_can_be_matched(tmp_path: Path) -> None:
    text = STUDY.replace("parameters: block.ffn.d_ff", "parameters: {knob: block.ffn.d_ff, count: non_embedding}")
    plan = plan_of(tmp_path, text.replace("  mqa: {", "  mqa: {vocab_size: 400, "))
    mha, mqa = plan.arms[:2]
    inside = [arm.parameters - arm.parameters_embedding for arm in (mha, mqa)]
    assert inside[1] == pytest.approx(inside[0], rel=0.005)
    assert mqa.differs["parameters"] > 5
    assert plan.study.budget.matched == "flops and non-embedding parameters"


def test_plans_and_study_documents_show_what_matching_edited(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    document, table = plan_json(outcome_of(plan)), plan_rows(plan)
    stored = study_document(outcome_of(plan))
    assert document["arms"][1]["matching"] == stored.arms[1].matching == plan.arms[1].matching
    assert document["arms"][1]["edits"] == {"block.mixer.kv_heads": 1}
    assert (stored.matched, document["arms"][0]["matched"]) == ("flops and parameters", "flops and parameters")
    assert set(document["arms"][1]["differs"]) == {"tokens", "flops", "parameters"}
    assert table[0][-1] == "adjusted to match"
    assert [row[-1] for row in table[1:3]] == ["", f"block.ffn.d_ff={plan.arms[1].matching['block.ffn.d_ff']}"]
    assert "adjusted to match" not in plan_rows(plan_of(tmp_path, STUDY, "budget={flops: 1e9}"))[0]
    assert matched_line(plan) == "Matched: flops and parameters. In brackets: the difference from mha."


ERRORS = {
    "unknown": (
        STUDY.replace("d_ff}\n", "dff}\n").replace("parameters: ", "parameters: @"),
        "budget.parameters: block.ffn.dff: unknown key (did you mean 'd_ff'?)",
    ),
    "missing in one arm": (
        STUDY.replace("parameters: block.ffn.d_ff", "parameters: @block.mixer.kv_heads").replace(
            "block.mixer.kv_heads: 1", "block.mixer: {kind: mla}"
        ),
        "budget.parameters: block.mixer.kv_heads: not a setting of mla, but of attention, ",
    ),
    "no effect": (
        STUDY.replace("parameters: block.ffn.d_ff", "parameters: @block.mixer.window"),
        "budget.parameters: block.mixer.window: does not change the parameters (in arm mqa)",
    ),
    "not a number": (
        STUDY.replace("parameters: block.ffn.d_ff", "parameters: @block.norm"),
        "budget.parameters: block.norm: must be a kind, or a map with the key 'kind' (in arm mqa)",
    ),
    "out of reach": (
        STUDY.replace("parameters: block.ffn.d_ff", "parameters: @n_layers"),
        "budget.parameters: n_layers: cannot give ",
    ),
    "set by the arm": (
        STUDY.replace("relu, d_ff: 8/3x", "relu, d_ff: @128"),
        "arms.relu.block.ffn.d_ff: budget.parameters sets block.ffn.d_ff in every arm: no arm can set it to a number",
    ),
    "set by the grid": (
        STUDY.replace("block.ffn: {kind: relu, d_ff: 8/3x}", "block.norm: layernorm")
        + "grid: {block.ffn.d_ff: [@64, 96]}\n",
        "grid.block.ffn.d_ff.0: budget.parameters sets block.ffn.d_ff in every arm",
    ),
    "the same in the end": (
        STUDY.replace("  mqa: {block.mixer.kv_heads: 1}", "  @mqa: {block.ffn.d_ff: 5x}"),
        "arms.mqa: with block.ffn.d_ff adjusted to match the baseline's parameters, it is the same as mha",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_cannot_be_matched_is_one_line_where_it_is_written(name: str, tmp_path: Path) -> None:
    text, message = ERRORS[name]
    before = text[: text.index("@")]
    with pytest.raises(StudyError) as error:
        plan_of(tmp_path, text.replace("@", "", 1))
    place = f"{tmp_path / 'matched.yaml'}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}: "
    assert str(error.value).startswith(place + message)
    assert len(str(error.value).splitlines()) == 1


def test_an_arm_out_of_reach_is_named_with_the_nearest_value_and_its_miss(tmp_path: Path) -> None:
    with pytest.raises(StudyError) as error:
        plan_of(tmp_path, STUDY.replace("8/3x", "128").replace("block.ffn.d_ff}", "{knob: block.ffn.d_ff, step: 64}}"))
    mha, mqa = (
        zoo.load("small", d_model=32, n_layers=2, vocab_size=257, **e) for e in ({}, {"block.mixer.kv_heads": 1})
    )
    target, found = (zoo.cost(spec).params for spec in (mha, mqa.edit({"block.ffn.d_ff": 128})))
    miss = f"{100 * (found / target - 1):+.1f} %"
    said = f"cannot give {target:,} parameters: the nearest, 128, gives {found:,} ({miss}) (in arm mqa)"
    assert str(error.value).endswith(said)


def test_editors_know_the_budgets() -> None:
    validator = jsonschema.Draft202012Validator(study_schema())

    def errors(**budget: Any) -> int:
        return len(list(validator.iter_errors({"question": "?", "budget": budget})))

    assert errors(seconds=60) == errors(flops=1e9, parameters="block.ffn.d_ff") == 0
    assert errors(tokens=100, parameters={"knob": "d_model", "step": 8, "count": "total"}) == 0
    for wrong in ({"seconds": 0}, {"tokens": 9, "parameters": 3}, {"tokens": 9, "parameters": {"knb": "d_model"}}):
        assert errors(**wrong) > 0


SECONDS = STUDY.replace("{flops: 1e9, parameters: block.ffn.d_ff}", "{seconds: 60}")


def clock(work: Sequence[Workload]) -> list[StepTime]:
    """A quarter of a second, and half of one with one kv head."""
    halves = [workload.spec.layers[0].mixer.kv_heads == 1 for workload in work]  # type: ignore[attr-defined]
    return [StepTime(0.5, "slow", 0.02, 4) if half else StepTime(0.25, "fast", 0.01, 4) for half in halves]


def test_seconds_give_steps_by_the_time_of_a_step(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, SECONDS, clock=clock)
    mha, mqa = plan.arms[:2]
    assert [arm.steps for arm in plan.arms] == [240, 120, 240, 240]
    assert [arm.matched for arm in plan.arms] == ["seconds"] * 4
    assert (mqa.differs["tokens"], mqa.differs["seconds"]) == (-50, 0)
    assert mha.runs[0].identity.steps == 240
    assert plan_json(outcome_of(plan), Speed(1.0))["arms"][1]["estimated_seconds"] == 60
    assert study_document(outcome_of(plan)).budget == SpentBudget(seconds=60)
    document = study_document(outcome_of(plan)).arms[1]
    assert (document.seconds, document.calibration) == (60.0, "slow")
    assert (document.step_time_error, document.step_time_processes) == (0.02, 4)
    header, *rows = plan_rows(plan)
    assert [row[header.index("seconds/run")] for row in rows[:2]] == ["60", "60"]


def test_a_run_in_seconds_is_the_run_of_as_many_tokens(tmp_path: Path) -> None:
    timed = plan_of(tmp_path, SECONDS, "seeds=1", clock=clock)
    again = plan_of(tmp_path, SECONDS, "seeds=3", clock=clock)
    tokens = plan_of(tmp_path, SECONDS, "budget={tokens: 7680}")
    assert timed.arms[0].runs == again.arms[0].runs[:1] == tokens.arms[0].runs[:1]


def test_parameters_go_with_seconds_and_the_clock_is_asked_for_what_is_trained(tmp_path: Path) -> None:
    asked: list[Workload] = []

    def watching(work: Sequence[Workload]) -> list[StepTime]:
        asked.extend(work)
        return [StepTime(1.0, "one")] * len(work)

    plan = plan_of(tmp_path, SECONDS.replace("60", "60, parameters: block.ffn.d_ff"), clock=watching)
    assert plan.study.budget.matched == "seconds and parameters"
    assert [workload.spec for workload in asked] == [arm.spec for arm in plan.arms]
    assert asked[1].spec.block.ffn.d_ff == plan.arms[1].matching["block.ffn.d_ff"]  # type: ignore[attr-defined]


def test_less_time_than_a_step_takes_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r":10:19: budget\.seconds: 0\.4 seconds are less than one step of arm mqa"):
        plan_of(tmp_path, SECONDS.replace("60", "0.4"), clock=clock)


def test_time_needs_a_clock(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a clock"):
        plan_of(tmp_path, SECONDS)
