"""The stages of a study: what is run, in which order, and what decides it. Losses are made up; nothing is trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ablate.data import DataIdentity
from ablate.planning.campaign import CampaignOutcome, Stage, campaign
from ablate.planning.identity import RunPlan
from ablate.planning.make_plan import make_plan
from ablate.planning.plan import Plan
from ablate.planning.plan_shown import remarks
from ablate.planning.study_document import study_document
from ablate.study.reading import load_study
from ablate.study.study import Study, StudyError
from ablate.wings.tuning.tuning import UnfinishedError
from reports.page.wording.training_words import carried_lines
from store.documents.tuning import RATE

DATA = DataIdentity("d" * 32, 257, "")
STUDY = """question: Which?
baseline: pre
base: {preset: small, d_model: 8, n_layers: 1, block.mixer.heads: 2, block.ffn.d_ff: 16}
arms: {post: {block.norm_placement: post}, double: {block.norm_placement: double}}
seeds: 2
train: {context: 4, batch: 2}
budget: {tokens: 800}
tune: off
"""
TUNE = "tune: {space: {train.lr: [1e-3, 1e-2, 1e-1]}, fraction: 1, seeds: 2}\n"
LADDER = "ladder:\n  s: {base.d_model: 4, budget.tokens: 400}\n  l: {}\n"

Score = Callable[[RunPlan], float | None]


def tuning(tune: str, text: str = STUDY) -> str:
    """The study with another section `tune`."""
    return text.replace("tune: off\n", tune)


def plan(study: Study) -> Plan:
    return make_plan(study, identify=lambda _: DATA)


def gone_through(
    tmp_path: Path,
    text: str,
    score: Score,
    open_arms: Sequence[Sequence[str]] = (),
    stalls_above: float = math.inf,
) -> tuple[list[Stage], CampaignOutcome]:
    """All stages, where each run's loss is `score` of it, and the arms still open after each stage of seeds."""
    path = tmp_path / "study.yaml"
    path.write_text(text, encoding="utf-8")
    known: dict[str, float | None] = {}
    stages, answers = campaign(load_study(path, "cpu"), plan, known.get, lambda _: stalls_above), list(open_arms)
    seen: list[Stage] = []
    answer: Sequence[str] = ()
    stage = next(stages)
    while True:
        seen.append(stage)
        known |= {run.digest: score(run) for each in stage.plans for run in each.runs}
        answer = answers.pop(0) if stage.outcome is not None and answers else ()
        try:
            stage = stages.send(answer)
        except StopIteration as end:
            assert isinstance(end.value, CampaignOutcome)
            return seen, end.value


def lr(run: RunPlan) -> float:
    value = run.identity.train["lr"]
    assert isinstance(value, float)
    return value


def test_without_tuning_there_is_one_stage(tmp_path: Path) -> None:
    stages, outcome = gone_through(tmp_path, STUDY, lambda _: 1.0)
    assert [stage.name for stage in stages] == ["seeds"]
    assert stages[0].outcome == outcome
    assert [(run.arm, run.seed) for run in outcome.plan.runs] == [
        (arm, seed) for seed in (0, 1) for arm in ("pre", "post", "double")
    ]


def test_every_arm_goes_on_with_its_own_best(tmp_path: Path) -> None:
    best = {"pre": 1e-2, "post": 1e-3, "double": 1e-1}

    def score(run: RunPlan) -> float:
        return math.log(lr(run) / best[run.arm.split()[0]]) ** 2

    stages, outcome = gone_through(tmp_path, tuning(TUNE.replace("seeds: 2", "seeds: 2, extend: 1, refine: 0")), score)
    assert [stage.name for stage in stages] == ["tuning, round 1", "tuning, round 2", "seeds"]
    first, second, last = (stage.plans[0] for stage in stages)
    assert len(first.runs) == 3 * 3 * 2
    assert {run.seed for run in first.runs} == {1000, 1001}
    assert {run.identity.steps for run in first.runs} == {100}
    assert {(run.arm.split()[0], lr(run)) for run in second.runs} == {("post", 1e-4), ("double", 1.0)}
    assert {run.arm: lr(run) for run in last.runs} == best
    assert [arm.tuned for arm in last.arms] == [{"train.lr": value} for value in best.values()]
    assert [arm.edits for arm in last.arms] == [
        {},
        {"block.norm_placement": "post"},
        {"block.norm_placement": "double"},
    ]
    document = study_document(outcome)
    assert [each.chosen for each in document.tuning] == [{"train.lr": value} for value in best.values()]
    assert [len(each.trials) for each in document.tuning] == [3, 4, 4]
    assert all(len(trial.runs) == 2 for each in document.tuning for trial in each.trials)


def test_arms_that_need_others_are_tuned_from_the_best_of_those(tmp_path: Path) -> None:
    """Trained whole for every tuning seed, at the rate that was found for it, before anything starts from it."""
    best = {"pre": 4e-2, "post": 1e-2, "double": 1.25e-3, "student": 1e-2}
    double = "block.norm_placement: double"
    arms = f"{{double: {{{double}}}, post: {{{double}, block.dropout: 0.1, start: {{arm: double, fraction: 0.5}}}}, "
    lines = STUDY.splitlines()
    lines[3] = f"arms: {arms}student: {{teacher: {{arm: double}}}}}}"
    text = tuning("tune: {refine: 0}\n", "\n".join(lines) + "\n").replace("batch: 2", "batch: 2, lr: 1e-2")

    def score(run: RunPlan) -> float:
        return math.log(lr(run) / best[run.arm.split()[0]]) ** 2

    stages, outcome = gone_through(tmp_path, text, score)
    sources = [stage for stage in stages if stage.name == "arms that others need"]
    assert [{(run.arm, run.seed) for run in stage.plans[0].runs} for stage in sources] == [
        {("double", 1000)},
        {("double", 1000), ("double", 1001)},
        {("double", 0), ("double", 1)},
    ]
    whole = {run.seed: run for stage in sources for run in stage.plans[0].runs}
    assert {(lr(run), run.identity.steps) for run in whole.values()} == {(1.25e-3, 100)}
    trials = [stages[number + 1].plans[0] for number in (stages.index(each) for each in sources)]
    short, full, last = ([run for run in plan.runs if run.arm.startswith("post")] for plan in trials)
    assert [{run.identity.steps for run in runs} for runs in (short, full, last)] == [{12}, {50}, {50}]
    for run in (*short, *full, *last):
        assert run.identity.start is not None
        assert (run.identity.start.run, run.identity.start.batches_before) == (whole[run.seed].digest, 100)
    students = [run for plan in trials for run in plan.runs if run.arm.startswith("student")]
    assert {run.identity.steps for run in students} == {25, 100}
    assert all(run.identity.teacher and run.identity.teacher.run == whole[run.seed].digest for run in students)
    assert {arm.name: arm.train.lr for arm in outcome.plan.arms} == pytest.approx(best, rel=1e-2)
    assert {each.arm for each in study_document(outcome).tuning} == set(best)
    said = "double, on which other arms depend, is tuned before them and trained in full for each tuning seed"
    assert said in remarks(load_study(tmp_path / "study.yaml", "cpu"), tuned=False)


def test_short_runs_say_where_to_look_and_runs_at_full_length_decide(tmp_path: Path) -> None:
    """Post-norm wants a higher rate the longer it trains, the others do not."""

    def score(run: RunPlan) -> float:
        best = 2.7e-2 if run.arm.startswith("post") and run.identity.steps == 100 else 1e-2
        return math.log(lr(run) / best) ** 2 + 0.1 * (run.seed == 1001)

    stages, outcome = gone_through(
        tmp_path, tuning("tune: {refine: 0}\n").replace("batch: 2", "batch: 2, lr: 1e-2"), score
    )
    first, second, third, last = (stage.plans[0] for stage in stages)
    assert [len(each.runs) for each in (first, second, third)] == [3 * 5, 3 * 3 * 2, 2]
    assert [{run.identity.steps for run in each.runs} for each in (first, second, third)] == [{25}, {100}, {100}]
    assert [{run.seed for run in each.runs} for each in (first, second)] == [{1000}, {1000, 1001}]
    assert {run.arm.split()[0] for run in third.runs} == {"post"}  # 2e-2 was the highest rate tried, and the best
    assert [arm.train.lr for arm in last.arms] == pytest.approx([1e-2, 2e-2, 1e-2])
    pre, post, _ = study_document(outcome).tuning
    assert (pre.rates, pre.fraction) == ((5e-3, 1e-2, 2e-2), 1.0)
    assert post.rates == (5e-3, 1e-2, 2e-2, 4e-2)
    assert post.trials[2].losses == pytest.approx([math.log(2 / 2.7) ** 2, math.log(2 / 2.7) ** 2 + 0.1])
    assert [(each.fraction, len(each.trials), len(each.trials[0].losses)) for each in post.coarse] == [(0.25, 5, 1)]


def test_rates_that_are_carried_as_the_report_says_give_the_same_runs(tmp_path: Path) -> None:
    def score(run: RunPlan) -> float:
        return math.log(lr(run) / (2e-2 if run.arm.startswith("post") else 1.23456e-2)) ** 2

    text = STUDY.replace("batch: 2", "batch: 2, lr: 1e-2")
    _, tuned = gone_through(tmp_path, tuning("tune: auto\n", text), score)
    lines = carried_lines(study_document(tuned))
    assert lines is not None
    _, carried = gone_through(tmp_path, tuning("", text) + lines, lambda _: 1.0)
    assert [run.digest for run in carried.plan.runs] == [run.digest for run in tuned.plan.runs]
    assert study_document(carried).rates.how == "carried"


def test_where_short_runs_fail_above_the_best_rate_full_length_tries_lower_ones(tmp_path: Path) -> None:
    def score(run: RunPlan) -> float:
        return math.log(lr(run) / 9e-3) ** 2 if lr(run) < 1.5e-2 else math.inf

    text = STUDY.replace("batch: 2", "batch: 2, lr: 1e-2")
    _, outcome = gone_through(tmp_path, tuning("tune: auto\n", text), score)
    found = study_document(outcome).tuning[0]
    first = (5e-3, 7.07107e-3, 1e-2, 2**0.5 * 1e-2)  # the last follows the edge
    assert found.rates[:4] == pytest.approx(first, rel=1e-5)
    assert all(7.07e-3 < rate < 2**0.5 * 1e-2 for rate in found.rates[4:])
    assert found.chosen[RATE] == pytest.approx(9e-3, rel=0.12)


def test_where_every_short_run_diverged_none_is_trained_at_full_length(tmp_path: Path) -> None:
    stages, outcome = gone_through(tmp_path, tuning("tune: auto\n"), lambda run: math.inf if run.arm != "pre" else 1.0)
    lower = 6  # steps that the list is extended by
    assert [stage.name for stage in stages] == [*(f"tuning, round {n + 1}" for n in range(1 + lower)), "seeds"]
    assert [(each.fraction, len(each.trials)) for each in study_document(outcome).tuning] == [(0.25, 5 + lower)] * 3


def test_where_every_short_run_stalled_full_length_begins_at_the_arm_s_own_rate(tmp_path: Path) -> None:
    """Short runs of deep models stall at rates at which longer ones train."""

    def score(run: RunPlan) -> float:
        if not run.arm.startswith("post"):
            return math.log(lr(run) / 1e-2) ** 2
        return 5.9 - lr(run) if run.identity.steps < 100 or lr(run) > 6e-3 else math.log(lr(run) / 3e-3) ** 2

    text = STUDY.replace("batch: 2", "batch: 2, lr: 1e-2")
    _, outcome = gone_through(tmp_path, tuning("tune: auto\n", text), score, stalls_above=5)
    pre, post, _ = study_document(outcome).tuning
    assert (len(pre.coarse[0].trials), len(post.coarse[0].trials)) == (5, 11)
    assert post.rates[:5] == pytest.approx((5e-3, 1e-2, 2e-2, 2.5e-3, 1.25e-3))
    assert post.chosen[RATE] == pytest.approx(3e-3, rel=0.15)


def test_a_tuned_arm_is_the_same_run_as_one_that_is_written_so(tmp_path: Path) -> None:
    _, tuned = gone_through(tmp_path, tuning(TUNE), lambda run: math.log(lr(run) / 1e-2) ** 2)
    _, written = gone_through(tmp_path, STUDY.replace("batch: 2", "batch: 2, lr: 1e-2"), lambda _: 1.0)
    assert [run.digest for run in tuned.plan.runs] == [run.digest for run in written.plan.runs]


def test_the_mean_over_the_tuning_seeds_decides_and_a_diverged_seed_loses(tmp_path: Path) -> None:
    losses = {1e-4: (4.0, 4.0), 1e-3: (1.0, 3.0), 1e-2: (1.8, 1.8), 1e-1: (0.1, math.inf)}
    study = tuning(TUNE.replace("seeds: 2", "seeds: 2, refine: 0"))
    _, outcome = gone_through(tmp_path, study, lambda run: losses[lr(run)][run.seed % 2])
    assert {lr(run) for run in outcome.plan.runs} == {1e-2}
    # One seed is better at 1e-3 than at the best rate: the one below is tried too.
    assert [trial.loss for trial in study_document(outcome).tuning[0].trials] == [2.0, 1.8, None, 4.0]


def test_a_tuning_run_without_a_result_stops_the_study(tmp_path: Path) -> None:
    with pytest.raises(UnfinishedError):
        gone_through(tmp_path, tuning(TUNE), lambda run: None if run.seed == 1001 else 1.0)


def test_a_ladder_runs_every_size_and_tunes_each(tmp_path: Path) -> None:
    best = {4: 1e-2, 8: 1e-1}

    def score(run: RunPlan) -> float:
        return abs(math.log(lr(run) / best[run.identity.model["d_model"]]))

    stages, outcome = gone_through(tmp_path, tuning(TUNE.replace("seeds: 2", "seeds: 1, extend: 0")) + LADDER, score)
    assert [stage.name for stage in stages] == ["tuning, round 1", "seeds"]
    small, large = (size.plan for size in outcome.rungs)
    assert [each.study.rung for each in (small, large)] == ["s", "l"]
    assert [{arm.spec.d_model for arm in each.arms} for each in (small, large)] == [{4}, {8}]
    assert ({arm.steps for arm in small.arms}, {arm.steps for arm in large.arms}) == ({50}, {100})
    assert [{lr(run) for run in each.runs} for each in (small, large)] == [{1e-2}, {1e-1}]
    document = study_document(outcome)
    assert [size.name for size in document.ladder] == ["s", "l"]
    assert document.arms == document.ladder[1].arms


@pytest.mark.parametrize(
    ("rungs", "message"),
    [
        (
            "{s: {}, l: {}}",
            r"9:\d+: ladder.l: spends .* FLOPs, not more than s \(.*\): list lengths from short to long",
        ),
        ("{h: 0.5, q: 0.25, l: {}}", r"9:21: ladder.q: spends .* FLOPs, not more than h \(.*\): list lengths"),
        ("{s: {base.d_model: 16}, l: {}}", r"9:\d+: ladder.l: .*: list sizes from small to large"),
        ("{s: {train.context: 2}, l: {}}", r"9:14: ladder.s.train.context: losses at different contexts"),
        ("{s: {budget.flops: 1e6}, l: {}}", r"9:28: ladder.s.budget.flops: rung s matches flops, but rung l tokens"),
        ("{s: 1e-3, l: {}}", r"9:13: ladder.s: 0.8 tokens are less than one step of arm pre \(8 for 2 rows"),
    ],
)
def test_rungs_without_one_curve_are_no_ladder(tmp_path: Path, rungs: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        gone_through(tmp_path, STUDY + f"ladder: {rungs}\n", lambda _: 1.0)


def test_lengths_are_the_same_models_at_rates_of_their_own(tmp_path: Path) -> None:
    """Half the length and half the size of 100 steps of eight features."""
    best = {(4, 50): 1e-2, (8, 50): 1e-3, (8, 100): 1e-1}

    def score(run: RunPlan) -> float:
        return abs(math.log(lr(run) / best[run.identity.model["d_model"], run.identity.steps]))

    rungs = "ladder: {half_size: {base.d_model: 4, budget.tokens: 400}, half_length: 0.5, full: {}}\n"
    stages, outcome = gone_through(tmp_path, tuning(TUNE.replace("seeds: 2", "seeds: 1, extend: 0")) + rungs, score)
    assert len(stages[0].plans) == 3
    ladder = study_document(outcome).ladder
    assert [(rung.name, rung.axis) for rung in ladder] == [
        ("half_size", "size"),
        ("half_length", "length"),
        ("full", None),
    ]
    assert [{arm.steps for arm in rung.arms} for rung in ladder] == [{50}, {50}, {100}]
    assert [{arm.tuned["train.lr"] for arm in rung.arms} for rung in ladder] == [{1e-2}, {1e-3}, {1e-1}]
    assert [len(rung.tuning) for rung in ladder] == [3, 3, 3]
    assert ladder[1].arms[0].parameters == ladder[2].arms[0].parameters > ladder[0].arms[0].parameters


def test_a_share_of_the_budget_is_the_run_of_the_budget_written_out(tmp_path: Path) -> None:
    written, share = (
        gone_through(tmp_path, f"{STUDY}ladder: {{half: {half}, full: {{}}}}\n", lambda _: 1.0)[1]
        for half in ("{budget.tokens: 400}", "0.5")
    )
    assert [run.digest for run in written.rungs[0].plan.runs] == [run.digest for run in share.rungs[0].plan.runs]


def test_only_the_last_rung_is_measured_and_evaluated(tmp_path: Path) -> None:
    _, outcome = gone_through(tmp_path, f"{STUDY}ladder: {{half: 0.5, full: {{}}}}\n", lambda _: 1.0)
    asked = [(rung.plan.measure_digest is not None, rung.plan.evals_digest is not None) for rung in outcome.rungs]
    assert asked == [(False, False), (True, True)]


def test_the_budget_of_a_size_leaves_parameters_matched(tmp_path: Path) -> None:
    text = STUDY.replace("tokens: 800", "tokens: 800, parameters: block.ffn.d_ff").replace(
        "double:", "thin: {block.ffn: gelu}, double:"
    )
    _, outcome = gone_through(
        tmp_path, text + LADDER.replace("d_model: 4", "d_model: 8, base.n_layers: 1"), lambda _: 1.0
    )
    assert [size.plan.study.budget.matched for size in outcome.rungs] == ["tokens and parameters"] * 2


def test_seeds_are_added_for_the_baseline_and_the_arms_that_are_open(tmp_path: Path) -> None:
    text = STUDY.replace("seeds: 2", "seeds: {start: 2, cap: 5}")
    stages, outcome = gone_through(tmp_path, text, lambda _: 1.0, [["post", "double"], ["double"]])
    seen = [[len(arm.runs) for arm in stage.plans[0].arms] for stage in stages]
    counts = [look.seeds for look in outcome.looks]
    assert counts[0] == 2 and counts[-1] == 5 and len(stages) == 3
    assert seen == [[2, 2, 2], [counts[1]] * 3, [counts[2], counts[1], counts[2]]]
    assert sum(look.alpha for look in outcome.looks) == pytest.approx(0.05)
    document = study_document(outcome)
    assert [look.seeds for look in document.looks] == counts


def test_no_more_seeds_than_the_cap_and_none_when_all_is_settled(tmp_path: Path) -> None:
    text = STUDY.replace("seeds: 2", "seeds: {start: 2, cap: 3}")
    stages, outcome = gone_through(tmp_path, text, lambda _: 1.0, [["post"]] * 9)
    assert len(stages) == len(outcome.looks) and len(outcome.plan.arms[1].runs) == 3
    settled, _ = gone_through(tmp_path, text, lambda _: 1.0, [[]])
    assert len(settled) == 1


START = STUDY.replace("double: {", "more: {train.lr: 1e-4, start: {arm: post, fraction: 0.1}, ")


def test_what_an_arm_starts_from_is_trained_first(tmp_path: Path) -> None:
    stages, outcome = gone_through(tmp_path, START.replace("double", "post"), lambda _: 1.0)
    assert [[run.arm for run in stage.plans[0].runs] for stage in stages] == [
        ["post", "post"],
        ["pre", "post", "more"] * 2,
    ]
    _, post, more = outcome.plan.arms
    assert (post.steps, more.steps) == (100, 10)
    assert [run.identity.start and run.identity.start.run for run in more.runs] == [run.digest for run in post.runs]


def test_a_run_is_another_when_it_starts_from_another(tmp_path: Path) -> None:
    text = START.replace("double", "post")
    _, plain = gone_through(tmp_path, text, lambda _: 1.0)
    _, first = gone_through(tmp_path, text.replace("fraction: 0.1", "fraction: 0.1, pooling: first"), lambda _: 1.0)
    _, longer = gone_through(tmp_path, text.replace("tokens: 800", "tokens: 880"), lambda _: 1.0)
    digests = [{run.digest for run in each.plan.arms[2].runs} for each in (plain, first, longer)]
    assert len(set().union(*digests)) == 6
    assert all(run.identity.digest == run.digest for run in plain.plan.runs)


def test_a_source_has_the_seeds_of_what_starts_from_it(tmp_path: Path) -> None:
    text = START.replace("double", "post").replace("seeds: 2", "seeds: {start: 2, cap: 3}")
    _, outcome = gone_through(tmp_path, text, lambda _: 1.0, [["more"]])
    assert [len(arm.runs) for arm in outcome.plan.arms] == [3, 3, 3]


def test_a_space_in_which_an_arm_finds_nothing_is_an_error_of_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8 and 16 heads divide the base's 32, and its 2 heads divide 20 and 28: each setting can be built by itself."""
    text = STUDY.replace("d_model: 8", "d_model: 32")
    heads, width = "block.mixer.heads: {range: [8, 16], step: 8}", "d_model: {range: [20, 28], step: 8}"
    tune = f"tune: {{space: {{{heads}, {width}}}, trials: 2}}\n"
    monkeypatch.setattr("ablate.wings.tuning.trials.MOST_ILLEGAL", 50)
    with pytest.raises(StudyError, match=r"study.yaml:8:\d+: tune.space: none of 50 settings .* \(in arm pre\)"):
        gone_through(tmp_path, tuning(tune, text), lambda _: 1.0)


@pytest.mark.parametrize(
    ("budget", "tune", "message"),
    [
        (
            "budget: {tokens: 800}",
            "{space: {train.lr: [1e-3, 1e-2]}, fraction: 0.001}",
            r"8:\d+: tune.fraction: 0.8 tokens are less than one step of arm pre",
        ),
        (
            "budget: {tokens: 800, parameters: block.ffn.d_ff}",
            "{space: {block.ffn.d_ff: [8, 16]}}",
            r"8:\d+: tune.space.block.ffn.d_ff: budget.parameters sets block.ffn.d_ff in every arm",
        ),
    ],
)
def test_what_cannot_be_tuned_is_placed_at_the_tuning(tmp_path: Path, budget: str, tune: str, message: str) -> None:
    text = tuning(f"tune: {tune}\n", STUDY.replace("budget: {tokens: 800}", budget))
    with pytest.raises(StudyError, match=message):
        gone_through(tmp_path, text, lambda _: 1.0)
