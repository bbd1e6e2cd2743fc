"""Next steps: a command for every verdict, with its time and its chance of success. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from reports.judge.findings.judging import as_one, looks_at
from reports.judge.findings.next_steps import NextStep
from reports.judge.findings.study_summary import ArmSummary, StudySummary
from reports.judge.findings.verdicts import guesses
from reports.judge.noise import Noise
from reports.judge.noise.power import ALPHA, POWER, seeds_for
from reports.judge.reading.outcomes import FAILED
from reports.judge.statistics.ledger import share
from store.documents.shell import budget_option, fresh_seeds, seeds_option
from store.documents.study import UNJUDGED, StudyDocument
from store.documents.study_arm import all_undertrained, wanting
from store.documents.tuning import RATE

WANTED = 0.02
"""Difference in nats worth settling if the study gives no margin."""
FEWEST = 3
"""Number of seeds with which a study begins."""
MOST = 40
"""Number of seeds above which a longer or larger study settles more than more seeds do."""
FURTHER = 4
"""Least factor by which a follow-up budget is longer."""
SETTLED = {"better", "worse", "no difference"}


def steps(summary: StudySummary) -> Iterator[NextStep]:
    """The commands that follow from the verdicts, the most informative first."""
    study, verdicts = summary.study, {judgement.verdict for judgement in summary.judgements}
    if study.scale in UNJUDGED:
        yield _at_scale(summary, "cpu", "answer the question")
    elif study.pilot and all_undertrained(study.arms):
        longer = wanting(arm.length for arm in study.arms)
        # a study with `pilot: true` would stay a pilot at any length
        yield _longer(summary, longer, f"train for long enough to judge: {longer:g} × as long", "--set pilot=false")
    elif study.pilot:
        yield _judge_afresh(summary, "--set pilot=false")
    elif any(arm.missing for arm in summary.arms):
        pace, left = _seconds_per_flop(summary), sum(len(arm.missing) * arm.planned.flops for arm in summary.arms)
        seconds = None if pace is None else pace * left
        yield NextStep(summary.command(), "finish the runs that have not ended", seconds)
    elif guesses(summary.runs):
        yield _longer(summary, FURTHER, f"learn the task, if possible: {FURTHER:g} × as long")
    else:
        if any(judgement.comparison.repeated for judgement in summary.judgements):
            yield _judge_afresh(summary)
        yield from _rates(summary)
        if "cannot tell" in verdicts and len(seeds := _trained_with(study)) == 1:
            more = seeds_option(range(seeds[0], seeds[0] + FEWEST))
            reason = f"measure seed noise, which takes at least two seeds: with {FEWEST}"
            yield NextStep(summary.command(more), reason, training_seconds(summary, FEWEST - 1))
        why_not = ""
        if "inconclusive" in verdicts and not summary.effects and summary.is_about_loss:
            seeds_enough, why_not = _seeds(summary)
            yield from seeds_enough
        if verdicts & {*SETTLED, "inconclusive"}:
            yield _larger(summary, why_not)


def _longer(summary: StudySummary, factor: float, reason: str, *options: str) -> NextStep:
    """Step that trains `factor` times as long. Learning rates tuned at the shorter budget are tuned again."""
    study = summary.study
    spent = study.budget.model_dump(include={"flops", "tokens", "seconds"}, exclude_none=True)
    more = [budget_option(name, amount * factor) for name, amount in spent.items()]
    is_carried = study.rates.how == "carried"  # the cost of tuning is unknown then
    tune = ["--set tune=auto"] if is_carried else []
    seeds = len(study.arms[0].runs)
    seconds = None if is_carried else training_seconds(summary, seeds, factor, tunes=True)
    return NextStep(summary.command(*more, *tune, *options), reason, seconds, tunes=bool(study.tuning))


def _judge_afresh(summary: StudySummary, *options: str) -> NextStep:
    """Step that repeats the question with as many new seeds."""
    seeds = max(len(summary.study.arms[0].runs), 2)
    command = summary.command(*options, _fresh(summary, seeds))
    return NextStep(command, "judge the question on fresh seeds", training_seconds(summary, seeds))


def _rates(summary: StudySummary) -> Iterator[NextStep]:
    """Steps for arms that trained at no learning rate, or whose best rate was at the edge of those tried."""
    study = summary.study
    trained = {_but_rate(arm) for arm in summary.arms if arm.seeds}
    stalled = [arm.name for arm in summary.arms if arm.verdict in FAILED and _but_rate(arm) not in trained]
    if stalled and not study.tuning:
        reason = f"find a learning rate at which {', '.join(stalled)} trains, if there is one"
        yield NextStep(summary.command("--set tune=auto"), reason)
    edges = [each.arm for each in study.tuning if RATE in each.edges]
    if edges:
        reason = f"search learning rates beyond those tried for {', '.join(edges)}"
        yield NextStep(summary.command("--set tune.extend=12"), reason)


def _but_rate(arm: ArmSummary) -> frozenset[tuple[str, str]]:
    """An arm's edits without the learning rate: if another arm trains with them, the rate is the question."""
    return frozenset((path, value) for path, value in arm.edits if path != RATE)


def _seeds(summary: StudySummary) -> tuple[list[NextStep], str]:
    """New seeds that find a difference of the margin, or of 0.02 nats, with 80 % probability; or the reason why seeds
    do not help.

    Seeds are not judged twice: new ones are a test of their own, at the share of the 5 % that earlier rounds left. The
    uncertainty of tuning is common to all seeds, so they have to find a difference that is smaller by that amount.
    """
    noise, arms = summary.noise.ahead or summary.noise.run, len(summary.arms)
    if noise is None:
        return [], ""
    tunings = [each for each in summary.study.tuning if each.fraction == 1]  # runs that tell of the noise, too
    tuned_seeds = max((len(trial.losses) for each in tunings for trial in each.trials), default=1)
    known = noise.freedom + (arms - 1) * (tuned_seeds - 1)
    if any(each.comparison.waits_for_rates for each in summary.judgements):
        return [], "more seeds do not help, since the best setting lies beyond those tried"
    level = ALPHA * share(looks_at(summary.tests, summary.ledger, summary.elsewhere) + 1)
    wanted = summary.study.margin or WANTED
    room = max(each.comparison.tuning_room for each in summary.judgements if each.verdict == "inconclusive")
    if room >= wanted:
        open_ = f"tuning leaves {room:.2g} nats uncertain, and the difference sought is {wanted:g}"
        return [], f"more seeds do not help, since {open_}"
    seeds = seeds_for(wanted - room, Noise(noise.sd, known), arms, alpha=level)
    if seeds is None or seeds > MOST:
        number = "more than a thousand" if seeds is None else f"{seeds:,}"
        return [], f"{number} fresh seeds would be needed to detect {wanted:g} nats"
    reason = f"detect a difference of {wanted:g} nats, if there is one: {seeds} fresh seeds"
    command, seconds = summary.command(_fresh(summary, seeds)), training_seconds(summary, seeds)
    return [NextStep(command, reason, seconds, POWER, seeds=seeds)], ""


def _fresh(summary: StudySummary, seeds: int) -> str:
    """Option for `seeds` new seeds that no arm has had, here or in an earlier judgement of the question."""
    earlier, _ = as_one(summary.tests, summary.ledger, summary.elsewhere)
    seen = (seed for record in earlier for test in record.tests for seed in test.seen)
    return fresh_seeds(max([*_trained_with(summary.study), *seen]), seeds)


def _trained_with(study: StudyDocument) -> list[int]:
    """The seeds of all arms, sorted."""
    return sorted({run.seed for arm in study.arms for run in arm.runs})


def _larger(summary: StudySummary, why_not: str) -> NextStep:
    """The study's next scale or, without one, a longer training. why_not: reason for not asking for seeds instead."""
    study, larger = summary.study, summary.study.next_scale
    holds = any(judgement.verdict in SETTLED for judgement in summary.judgements)
    because = f" ({why_not})" if why_not else ""
    if larger:
        where = f"the larger scale {larger}{' on a GPU' if larger.startswith('gpu') else ''}"
        reason = f"see whether the result holds at {where}" if holds else f"see whether a difference shows at {where}"
        return _at_scale(summary, larger, f"{reason}{because}")
    factor = max(FURTHER, wanting(arm.length for arm in study.arms))
    longer = f"when trained {factor:g} × as long"
    reason = f"see whether the result holds {longer}" if holds else f"see whether a difference shows {longer}"
    return _longer(summary, factor, f"{reason}{because}")


def _at_scale(summary: StudySummary, scale: str, reason: str) -> NextStep:
    """Step that runs the study at another scale, with the time forecast for that scale."""
    command, found = summary.command(scale=scale), summary.study.forecast
    if found is None or found.scale != scale:
        return NextStep(command, reason)
    return NextStep(command, reason, found.tuning + found.training, tunes=found.tuning > 0)


def training_seconds(summary: StudySummary, seeds: int, factor: float = 1.0, *, tunes: bool = False) -> float | None:
    """Time for `seeds` runs of every arm at every rung, one after another; None before any run has finished.

    factor: how many times longer the runs are. tunes: whether to add a repetition of the tuning runs.
    """
    pace = _seconds_per_flop(summary)
    if pace is None:
        return None
    study = summary.study
    rungs = [(rung.arms, rung.tuning) for rung in study.ladder] or [(study.arms, study.tuning)]
    flops = [seeds * arm.flops for arms, _ in rungs for arm in arms]
    for arms, tuning in rungs if tunes else ():
        sizes = {arm.name: arm.flops for arm in arms}
        passes = [(each.arm, part) for each in tuning for part in (each, *each.coarse)]
        flops += [part.fraction * sizes[arm] * sum(len(trial.losses) for trial in part.trials) for arm, part in passes]
    return pace * factor * sum(flops)


def _seconds_per_flop(summary: StudySummary) -> float | None:
    done = summary.runs.filter(status="finished").drop_nulls(("train_seconds", "flops"))
    flops = float(done["flops"].sum())
    return float(done["train_seconds"].sum()) / flops if flops else None
