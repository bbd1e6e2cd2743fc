"""Statistical power before training: the difference that a study will probably detect, from the noise of like runs."""

from __future__ import annotations

from dataclasses import dataclass

from ablate.planning.plan import Plan
from ablate.readable import clock
from ablate.study.tune_spec import TuneSpec
from reports.judge.noise import Noise
from store import Store
from store.documents.shell import budget_option, fresh_seeds
from store.documents.study import UNJUDGED
from store.documents.study_arm import STEPS, TOKENS_PER_PARAMETER, wanting
from store.store import Likeness, like_tables
from zoo.costs import cost
from zoo.errors import SpecError

MEASURED = (
    (0.056e6, 0.0120, "nine five-seed studies of 0.06 M parameters on a CPU"),
    (0.11e6, 0.0128, "studies of 0.11 M parameters on a CPU"),
    (124e6, 0.0014, "public speed-runs of 124 M parameters"),
)
"""Non-embedding parameters, standard deviation of one run's loss in nats, and origin."""


@dataclass(frozen=True)
class Foresight:
    """Expected noise.

    sd: standard deviation of a run's loss, in nats. source: where it was measured. known: degrees of freedom of stored
    runs and of tuning, by which the study will be judged beside its own.
    """

    sd: float
    source: str
    known: float = 0

    def detectable(self, plan: Plan, level: float) -> float | None:
        """The difference in nats that the study detects with 80 % probability; None with fewer than two arms or seeds.

        The uncertainty left by tuning comes on top. level: significance level that remains for the question.
        """
        from reports.judge.noise.power import detectable_by  # noqa: PLC0415 (a run needs no scipy)

        arms, seeds = len(plan.arms), min(len(arm.runs) for arm in plan.arms)
        if arms < 2 or seeds < 2:
            return None
        return detectable_by(Noise(self.sd, self.known), seeds, arms, alpha=level)

    def seeds(self, plan: Plan, difference: float, level: float) -> int | None:
        """The fewest seeds that detect a difference (nats) at a level; None if a thousand would not, or for one arm."""
        from reports.judge.noise.power import seeds_for  # noqa: PLC0415 (a run needs no scipy)

        noise, arms = Noise(self.sd, self.known), len(plan.arms)
        return seeds_for(difference, noise, arms, alpha=level) if arms > 1 else None


@dataclass(frozen=True)
class Detection:
    """The number of seeds that detect a difference with 80 % probability.

    Attributes:
        difference: in nats.
        seeds: number of seeds; None if a thousand would not do.
        seconds: estimated time of training and tuning, without measuring and evaluation.
        after: the last seed on which the question was judged, after which fresh seeds begin; None if it was not judged.
        level: significance level that remains for the question.
        unjudged: why the study has no verdicts, and so detects nothing; None if it can have some.
        tuning_seconds: tuning's part of `seconds`.
        tunes: whether rates are tuned, which leaves an uncertainty that seeds do not reduce.
    """

    difference: float
    seeds: int | None
    seconds: float | None
    after: int | None
    level: float
    unjudged: str | None = None
    tuning_seconds: float | None = None
    tunes: bool = False

    def __str__(self) -> str:
        if self.unjudged is not None:
            return f"no number of seeds detects {self.difference:g} nats here, as the study gives no verdicts"
        if self.seeds is None or self.seconds is None:
            return f"no number of seeds up to 1,000 would detect {self.difference:g} nats"
        time = f"about {clock(max(1.0, self.seconds))} of training"
        if self.tuning_seconds:
            time += f" and tuning (tuning {clock(max(1.0, self.tuning_seconds))})"
        time += ", excluding measuring and evaluation"
        seen = f"{self.difference:g} nats{', plus the uncertainty of tuning,' * self.tunes} with 80 % power"
        if self.after is None:
            return f"{self.seeds} seeds detect {seen} (--set seeds={self.seeds}): {time}"
        left = f"{100 * self.level:.2g} %, what is left of the 5 % for this question"
        return f"{self.seeds} fresh seeds detect {seen}, at {left} ({fresh_seeds(self.after, self.seeds)}): {time}"


def foresight(plan: Plan, store: Store, tune: TuneSpec | None) -> Foresight:
    """The noise of comparable stored runs, else of the nearest size in `MEASURED`.

    tune: the study's tuning. Full-length tuning runs at an arm's chosen settings are samples of the noise too.
    """
    from reports.judge.noise.moderated import noise_of_studies  # noqa: PLC0415 (a run needs no scipy)

    last = tune.passes[-1] if tune else None
    freedom = (len(plan.arms) - 1) * (len(last.seeds) - 1) if last and last.fraction == 1 else 0
    base = plan.arms[0]
    size = base.length.parameters
    like = Likeness(size, base.steps, frozenset(arm.identity.digest for arm in plan.arms))
    noise = noise_of_studies(like_tables(store, like, {run.digest for run in plan.runs}))
    if noise is not None:
        return Foresight(noise.sd, f"from comparable runs of {store.root}", freedom + noise.freedom)
    _, sd, where = min(MEASURED, key=lambda known: max(known[0] / size, size / known[0]))
    return Foresight(sd, f"measured in {where}", freedom)


def detectable_lines(detectable: float | None, found: Foresight, *, tuned: bool) -> list[str]:
    """`will probably detect differences of 0.029 nats (80 % power): …`; empty if `detectable` is None."""
    if detectable is None:
        return []
    room = ", plus the uncertainty of tuning" if tuned else ""
    noise = f"a run's loss has a standard deviation of {found.sd:.2g} nats, {found.source}"
    return [f"will probably detect differences of {detectable:.2g} nats{room} (80 % power): {noise}"]


# Detect plans that cannot yield verdicts, and name the remedy.

FEWEST_SEEDS = 2
"""Fewest seeds from which the noise between them can be estimated."""
WIDTHS = 16
"""Number of widths that are tried, in equal steps."""


def is_pilot(plan: Plan) -> bool:
    """Whether the study declares itself a pilot or, if it says nothing, all arms are undertrained."""
    said = plan.study.sections.pilot
    return all(arm.length.undertrained for arm in plan.arms) if said is None else said


def unjudged(plan: Plan) -> str | None:
    """Why the study will have no verdicts; None if it may have some."""
    study, budget = plan.study, plan.study.budget
    if study.scale in UNJUDGED:
        return f"no verdicts: {study.scale} shows that a study runs, not what it finds"
    if not is_pilot(plan):
        return None
    if study.sections.pilot:
        return "a pilot: it gives estimates but no verdicts, and spends none of the question's 5 %"
    longer = wanting(arm.length for arm in plan.arms)
    more = budget_option(budget.given, budget.amount * longer)
    smaller = that_fits(plan)
    other = f", or without more time {smaller}" if smaller else ""
    return f"no verdicts, as all arms are undertrained: {longer:g} × the budget would be enough ({more}){other}"


def that_fits(plan: Plan) -> str:
    """Options for the largest model, and then the largest batch, that would be trained for long enough in the same
    budget: `--set base.d_model=24 --set train.batch=4`. Empty if there are none."""
    arm = max(plan.arms, key=lambda arm: arm.length.wanting)
    spec, train = arm.spec, arm.train
    if plan.study.budget.given == "tokens_per_parameter" or arm.length.after_checkpoint:
        return ""
    for width in dict.fromkeys(spec.d_model * part // WIDTHS for part in range(WIDTHS, 0, -1)):
        try:
            costs = cost(spec.edit({"d_model": width}), train.context)
        except SpecError:  # a width that the heads do not divide
            continue
        cheaper = arm.cost.flops_per_token / costs.flops_per_token if plan.study.budget.kind == "flops" else 1.0
        tokens = arm.tokens * cheaper
        batch = min(train.batch, int(tokens / (STEPS * train.context)))
        if batch and tokens >= TOKENS_PER_PARAMETER * costs.params_inside:
            return " ".join(
                [f"--set base.d_model={width}"] * (width < spec.d_model)
                + [f"--set train.batch={batch}"] * (batch < train.batch)
            )
    return ""


def seeds_line(plan: Plan) -> str | None:
    """Why fewer than two seeds give no verdict; None with more, or if no arms are compared."""
    fewest = min(len(arm.runs) for arm in plan.arms)
    if len(plan.arms) < 2 or fewest >= FEWEST_SEEDS:
        return None
    return "no verdicts: estimating the noise between seeds needs at least two (--set seeds=3)"
