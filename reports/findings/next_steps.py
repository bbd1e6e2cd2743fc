"""Next steps: after every verdict a command, with its time and its chance. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from pydantic import JsonValue

from ablate.noise.power import ALPHA, POWER, seeds_for
from ablate.noise.scatter import Noise
from ablate.store.documents.length import wanting
from ablate.store.documents.shell import budget_option, fresh_seeds, seeds_option
from ablate.store.documents.study import UNJUDGED, StudyDocument
from ablate.store.documents.study_arm import all_undertrained
from ablate.store.documents.tuning import RATE
from reports.findings.judging import looks_at
from reports.findings.study_summary import ArmSummary, StudySummary
from reports.findings.withheld import guesses
from reports.reading.outcomes import FAILED
from reports.statistics.ledger import share

WANTED = 0.02
"""Nats that are worth settling where the study gives no margin."""
FEWEST = 3
"""Number of seeds that a study begins with."""
MOST = 40
"""Seeds beyond which a longer or larger study settles more than more seeds do."""
FURTHER = 4
"""Times as long a budget where no arm learned the task."""


@dataclass(frozen=True)
class NextStep:
    """A command, what it is for, the seconds that it takes one run after another, and the chance that it settles what
    it is for; None where these are not known."""

    command: str
    reason: str
    seconds: float | None = None
    chance: float | None = None

    def document(self, at_once: int = 1) -> dict[str, JsonValue]:
        """The document that `ablate run --json` prints; at_once: how many runs share the work."""
        seconds = None if self.seconds is None else self.seconds / at_once
        return {"command": self.command, "reason": self.reason, "seconds": seconds, "chance": self.chance}


def next_steps(summary: StudySummary) -> tuple[NextStep, ...]:
    """The commands that follow from the verdicts, the most telling one first."""
    return tuple({step.command: step for step in _steps(summary)}.values())


def _steps(summary: StudySummary) -> Iterator[NextStep]:
    study, verdicts = summary.study, {judgement.verdict for judgement in summary.judgements}
    if study.scale in UNJUDGED:
        yield NextStep(summary.command(scale="cpu"), "answer the question")
    elif study.pilot and all_undertrained(study.arms):
        longer = wanting(arm.length for arm in study.arms)
        yield NextStep(summary.command(_budget(study, longer)), f"train for long enough to judge: {longer:g} × as long")
    elif study.pilot:
        fresh = _fresh(summary, len(study.arms[0].runs))
        yield NextStep(summary.command("--set pilot=false", fresh), "judge the question on fresh seeds")
    elif any(arm.missing for arm in summary.arms):
        yield NextStep(summary.command(), "finish the runs that have not ended")
    elif guesses(summary.runs):
        yield NextStep(summary.command(_budget(study, FURTHER)), f"learn the task, if it can be: {FURTHER:g} × as long")
    else:
        yield from _rates(summary)
        if "cannot tell" in verdicts and len(seeds := _trained_with(study)) == 1:
            more = seeds_option(range(seeds[0], seeds[0] + FEWEST))
            yield NextStep(summary.command(more), f"see how far seeds scatter, which takes two: with {FEWEST}")
        if "inconclusive" in verdicts and not summary.effects:
            yield from _seeds(summary)
        if verdicts & {"better", "worse", "no difference", "inconclusive"}:
            yield from _larger(summary)


def _budget(study: StudyDocument, factor: float) -> str:
    """Options that multiply the budget of a run, for which rates that were tuned at the shorter one are tuned again."""
    spent = study.budget.model_dump(include={"flops", "tokens", "seconds"}, exclude_none=True)
    more = [budget_option(name, amount * factor) for name, amount in spent.items()]
    return " ".join([*more, *(["--set tune=auto"] if study.rates.how == "carried" else [])])


def _rates(summary: StudySummary) -> Iterator[NextStep]:
    """Arms that trained with no rate, or whose best rate was the last one tried."""
    study = summary.study
    trained = {_but_rate(arm) for arm in summary.arms if arm.seeds}
    stalled = [arm.name for arm in summary.arms if arm.verdict in FAILED and _but_rate(arm) not in trained]
    if stalled and not study.tuning:
        reason = f"find a rate at which {', '.join(stalled)} trains, if there is one"
        yield NextStep(summary.command("--set tune=auto"), reason)
    edges = [each.arm for each in study.tuning if RATE in each.edges]
    if edges:
        reason = f"follow the best rate of {', '.join(edges)} beyond those tried"
        yield NextStep(summary.command("--set tune.extend=12"), reason)


def _but_rate(arm: ArmSummary) -> frozenset[tuple[str, str]]:
    """The edits of an arm without its learning rate: where another arm trains with them, the rate is the question."""
    return frozenset((path, value) for path, value in arm.edits if path != RATE)


def _seeds(summary: StudySummary) -> Iterator[NextStep]:
    """Fresh seeds that settle the margin, or 0.02 nats, with 80 % probability.

    Seeds that were judged are not judged again: fresh ones are a test of their own, at what the rounds before it left
    of the 5 %. What tuning leaves open is left open by all of them, so that the seeds have to find a difference as much
    smaller.
    """
    noise, arms = summary.noise.run, len(summary.arms)
    if noise is None or any(each.comparison.waits_for_rates for each in summary.judgements):
        return
    level = ALPHA * share(looks_at(summary.tests, summary.ledger, summary.elsewhere) + 1)
    wanted = summary.study.margin or WANTED
    room = max(each.comparison.tuning_room for each in summary.judgements if each.verdict == "inconclusive")
    seeds = seeds_for(wanted - room, Noise(noise.sd, 0), arms, alpha=level) if room < wanted else None
    if seeds is None or seeds > MOST:
        return
    took = summary.runs.filter(status="finished")["train_seconds"].drop_nulls().to_list()
    reason = f"settle {wanted:g} nats: {seeds} fresh seeds, judged at the {100 * level:.2g} % that is left of the 5 %"
    command = summary.command(_fresh(summary, seeds))
    yield NextStep(command, reason, seeds * arms * fmean(took) if took else None, POWER)


def _fresh(summary: StudySummary, seeds: int) -> str:
    """An option that asks for so many seeds that no arm has had."""
    return fresh_seeds(max(_trained_with(summary.study)), seeds)


def _trained_with(study: StudyDocument) -> list[int]:
    """The seeds of all arms, sorted."""
    return sorted({run.seed for arm in study.arms for run in arm.runs})


def _larger(summary: StudySummary) -> Iterator[NextStep]:
    """The next scale that the study has; where there is none, a longer training."""
    study, larger = summary.study, summary.study.next_scale
    if larger:
        where = " on a GPU" if larger.startswith("gpu") else ""
        yield NextStep(summary.command(scale=larger), f"see whether it holds at the larger scale {larger}{where}")
    else:
        factor = max(FURTHER, wanting(arm.length for arm in study.arms))
        longer = summary.command(_budget(study, factor))
        yield NextStep(longer, f"see whether it holds when trained {factor:g} × as long")


def step_words(step: NextStep, at_once: int = 1) -> str:
    """`Next, to settle 0.02 nats …: ablate run …  (about 12 minutes, 80 %)`; at_once: how many runs share the work."""
    known = []
    if step.seconds is not None:
        minutes = step.seconds / at_once / 60
        known.append(f"about {math.ceil(minutes)} minute{'' if minutes <= 1 else 's'} of training")
    if step.chance is not None:
        known.append(f"{100 * step.chance:.0f} % chance")
    return f"Next, to {step.reason}: {step.command}" + (f" ({', '.join(known)})" if known else "")
