"""Statistical power before training: the difference that a study will probably detect, from the noise of like runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from ablate.planning.plan import ArmPlan, Plan
from ablate.readable import clock
from ablate.store import Store
from ablate.store.documents.shell import fresh_seeds
from ablate.study.tune_spec import TuneSpec

ALIKE = 2.0
"""Stored runs are comparable if their size and their length differ by at most this factor."""
STUDIES_READ = 50
LEAST_FREEDOM = 4
"""Degrees of freedom below which the noise of stored runs is less reliable than `MEASURED`."""
MEASURED = (
    (0.056e6, 0.0120, "nine five-seed studies of 0.06 M parameters on a CPU"),
    (0.11e6, 0.0128, "studies of 0.11 M parameters on a CPU"),
    (124e6, 0.0014, "public speed-runs of 124 M parameters"),
)
"""Non-embedding parameters, standard deviation of one run's loss in nats, and origin."""


@dataclass(frozen=True)
class Foresight:
    """sd: expected standard deviation of a run's loss, in nats. source: where it was measured. tuning_freedom: degrees
    of freedom that the study's tuning runs will add to those of its seeds."""

    sd: float
    source: str
    tuning_freedom: int = 0

    def detectable(self, plan: Plan, level: float) -> float | None:
        """The difference in nats that the study detects with 80 % probability; None with fewer than two arms or seeds.

        The uncertainty left by tuning comes on top. level: significance level that remains for the question.
        """
        from ablate.noise.power import detectable_by  # noqa: PLC0415 (a run needs no scipy)
        from ablate.noise.scatter import Noise  # noqa: PLC0415

        arms, seeds = len(plan.arms), min(len(arm.runs) for arm in plan.arms)
        if arms < 2 or seeds < 2:
            return None
        return detectable_by(Noise(self.sd, self.tuning_freedom), seeds, arms, alpha=level)

    def seeds(self, plan: Plan, difference: float, level: float) -> int | None:
        """The fewest seeds that detect a difference (nats) at a level; None if a thousand would not, or for one arm."""
        from ablate.noise.power import seeds_for  # noqa: PLC0415 (a run needs no scipy)
        from ablate.noise.scatter import Noise  # noqa: PLC0415

        noise, arms = Noise(self.sd, self.tuning_freedom), len(plan.arms)
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
    last = tune.passes[-1] if tune else None
    freedom = (len(plan.arms) - 1) * (len(last.seeds) - 1) if last and last.fraction == 1 else 0
    sd, source = _stored(plan, store) or _measured(plan.arms[0])
    return Foresight(sd, source, freedom)


def _measured(arm: ArmPlan) -> tuple[float, str]:
    size = arm.length.parameters
    _, sd, where = min(MEASURED, key=lambda known: max(known[0] / size, size / known[0]))
    return sd, f"measured in {where}"


def _stored(plan: Plan, store: Store) -> tuple[float, str] | None:
    from ablate.noise.scatter import scatter  # noqa: PLC0415 (a run needs no scipy)

    noise = scatter(*_tables(plan, store)).noise
    if noise is None or noise.sd == 0 or noise.freedom < LEAST_FREEDOM:
        return None
    return noise.sd, f"from comparable runs of {store.root}"


def _tables(plan: Plan, store: Store) -> Iterator[Mapping[str, Mapping[int, float]]]:
    """Losses by arm and seed, for each stored study of similar size and length on the same data."""
    wanted = plan.arms[0]
    data = {arm.identity.digest for arm in plan.arms}
    for folder in islice(store.studies(), STUDIES_READ):
        document = folder.read()
        if document is None:
            continue
        base = document.baseline_arm
        alike = _near(base.length.parameters, wanted.length.parameters) and _near(base.steps, wanted.steps)
        if not alike or base.data not in data:
            continue
        table = {}
        for arm in document.arms:
            results = {run.seed: store.outcome(run.digest) for run in arm.runs}
            losses = {seed: found.loss for seed, found in results.items() if found and found.status == "finished"}
            table[f"{document.name} {arm.name}"] = {seed: loss for seed, loss in losses.items() if loss is not None}
        if table:
            yield table


def _near(one: float, other: float) -> bool:
    return bool(one and other) and max(one / other, other / one) <= ALIKE


def detectable_lines(detectable: float | None, found: Foresight, *, tuned: bool) -> list[str]:
    """`will probably detect differences of 0.029 nats (80 % power): …`; empty if `detectable` is None."""
    if detectable is None:
        return []
    room = ", plus the uncertainty of tuning" if tuned else ""
    noise = f"a run's loss has a standard deviation of {found.sd:.2g} nats, {found.source}"
    return [f"will probably detect differences of {detectable:.2g} nats{room} (80 % power): {noise}"]
