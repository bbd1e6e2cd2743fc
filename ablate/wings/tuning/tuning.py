"""Tuning a study's arms in rounds: each pass of an arm asks for trials, whose losses decide on the next."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count

from pydantic_core import to_jsonable_python

from ablate.planning.campaign import LossOf, MakePlan, Stage, StallsAbove, Starts, StartsOf, Tried, needed
from ablate.planning.plan import ArmPlan
from ablate.study.arms import Arm
from ablate.study.space import Space
from ablate.study.study import Study, StudyError
from ablate.study.tune_spec import BELOW, COARSE, FINE, Pass, TuneSpec, rates_alone, rates_around
from ablate.wings.tuning.grid import grid
from ablate.wings.tuning.trials import Batches, IllegalSpaceError, Legal, Settings, Stalls, Tuned, sampled
from store.documents import SearchStart, StudyPass, StudyTrial, StudyTuning
from store.documents.tuning import RATE, trials

UNTUNED = ("measure", "evals", "probes")
"""Sections that tuning runs omit."""
MORE = 2
"""Rates that an arm's last pass tries beyond those listed, at an edge or in between: the mean of recorded studies."""


class UnfinishedError(Exception):
    """A run whose loss determines the next stage has no result."""


@dataclass(frozen=True)
class TuningPass:
    """Tuning runs of an arm, all of one length."""

    fraction: float
    """Share of the study's budget."""
    tuned: Tuned
    runs: tuple[tuple[str, ...], ...]
    """Digests of the runs of each trial."""


def study_tuning(arm: str, passes: Sequence[TuningPass], start: SearchStart | None = None) -> StudyTuning:
    """An arm's tuning in the study's document: its passes in order, of which the last one determines the settings, and
    where the search began, if at known rates."""
    *coarse, last = passes
    found = last.tuned
    return StudyTuning(
        arm=arm,
        chosen=to_jsonable_python(found.chosen),
        edges=found.edges,
        curve=found.curve,
        reason=found.reason,
        fraction=last.fraction,
        trials=_of_pass(last),
        coarse=tuple(StudyPass(fraction=each.fraction, trials=_of_pass(each)) for each in coarse),
        start=start,
    )


def _of_pass(found: TuningPass) -> tuple[StudyTrial, ...]:
    return tuple(
        StudyTrial(
            settings=to_jsonable_python(trial.settings),
            losses=tuple(loss if math.isfinite(loss) else None for loss in trial.losses),
            runs=runs,
            stalled=trial.stalled,
        )
        for trial, runs in zip(found.tuned.trials, found.runs, strict=True)
    )


def tuned(
    rungs: Sequence[Study], plan: MakePlan, losses: LossOf, stalls_above: StallsAbove, starts: StartsOf
) -> Generator[Stage, Sequence[str], Sequence[Tried]]:
    """Tune all arms of all rungs concurrently, in rounds. Arms that start from others, or have them as teachers, come
    after those, so as to use them at their tuned settings. Each length is tuned separately: the best rate of a long
    run may fail to train a short one."""
    tried: list[Tried] = [(rung, ()) for rung in rungs]
    begun = [starts(rung, plan(rung)) if rung.tune else {} for rung in rungs]
    rounds = count(1)
    for needy in (False, True):
        jobs = [
            [_Job(rung, arm, start.get(arm.name)) for arm in rung.arms if rung.tune and bool(arm.sources) == needy]
            for (rung, _), start in zip(tried, begun, strict=True)
        ]
        together = list(chain.from_iterable(jobs))
        while waiting := [job for job in together if not job.is_done]:
            asked = {(id(job.study), job.at): job.study for job in waiting}
            plans = {key: plan(_trials(rung, key[1], waiting)) for key, rung in asked.items()}
            if sources := needed(plans.values()):
                yield Stage("arms that others need", sources, tunes=True)
            yield Stage(f"tuning, round {next(rounds)}", tuple(plans.values()), tunes=True)
            for job in waiting:
                job.hear(plans[id(job.study), job.at].arms, losses, stalls_above)
        for place, ((rung, tunings), own) in enumerate(zip(tried, jobs, strict=True)):
            chosen = {job.arm.name: job.passes[-1].tuned.chosen for job in own}
            arms = [rung.builder.tuned(arm, chosen[arm.name]) if arm.name in chosen else arm for arm in rung.arms]
            found = (study_tuning(job.arm.name, job.passes, job.start) for job in own)
            tried[place] = replace(rung, arms=tuple(arms)), (*tunings, *found)
    return tried


def _trials(rung: Study, at: Pass, jobs: Sequence[_Job]) -> Study:
    """A study whose arms are the jobs' next trials, with the seeds and the share of the budget of their pass. Arms that
    trials depend on are added, with the full budget."""
    arms = [replace(arm, share=at.fraction) for job in jobs if job.study is rung and job.at == at for arm in job.arms()]
    needed = {name for arm in arms for name in arm.sources}
    sections = rung.sections.model_copy(update={"seeds": at.seeds, "tune": None, **dict.fromkeys(UNTUNED)})
    first, *others = rung.arms
    # Without seeds the baseline is not trained, but the others' budgets and parameters are matched to it.
    baseline = first if first.name in needed else replace(first, seeds=())
    sources = [arm for arm in others if arm.name in needed]
    return replace(rung, sections=sections, arms=(baseline, *sources, *arms), reads="tuning")


def propose(spec: TuneSpec, space: Space, legal: Legal, stalls: Stalls = lambda loss: False) -> Batches:
    """Yield batches of settings of one arm to try; expects the losses of each batch to be sent; returns a `Tuned`.

    Deterministic given the losses, so that an interrupted tuning resumes from the store. legal: whether an arm can be
    built with settings that the study does not list.
    """
    return (grid if spec.is_grid else sampled)(spec, space, legal, stalls)


class _Job:
    """Tunes one arm of one rung, pass by pass. start: known rates, with which the last pass begins at once."""

    def __init__(self, study: Study, arm: Arm, start: SearchStart | None) -> None:
        if study.tune is None:
            raise ValueError("the study tunes nothing")
        self.study, self.arm, self.spec, self.start = study, arm, study.tune, start
        self.passes: list[TuningPass] = []
        self._planned = self.spec.passes if start is None else self.spec.passes[-1:]
        self._stalled_above = math.inf
        self._begin(self.spec.space_around(arm.train.lr) if start is None else rates_alone(start.rates))

    @property
    def at(self) -> Pass:
        """The current pass."""
        return self._planned[len(self.passes)]

    @property
    def is_done(self) -> bool:
        """Whether all passes are done, or every trial of one diverged, which leaves nothing to refine."""
        return len(self.passes) == len(self._planned) or any(math.isinf(each.tuned.least) for each in self.passes)

    def _begin(self, space: Space) -> None:
        self._runs: list[tuple[str, ...]] = []
        self._batches: Batches = propose(self.spec, space, self._legal, lambda loss: loss > self._stalled_above)
        self._batch = self._next()

    def _legal(self, settings: Settings) -> bool:
        try:
            self.study.builder.tuned(self.arm, settings)
        except StudyError:
            return False
        return True

    def arms(self) -> list[Arm]:
        """Arms to try next."""
        variants = [self.study.builder.tuned(self.arm, settings) for settings in self._batch]
        return [replace(arm, name=self._name(number)) for number, arm in enumerate(variants)]

    def _name(self, number: int) -> str:
        values = ", ".join(f"{path.rpartition('.')[2]}={value}" for path, value in self._batch[number].items())
        return f"{self.arm.name} with {values}"

    def hear(self, arms: Sequence[ArmPlan], losses: LossOf, stalls_above: StallsAbove) -> None:
        """Take in the losses of the last batch, whose runs are done."""
        self._stalled_above = stalls_above(arms[0])
        runs = {arm.name: tuple(run.digest for run in arm.runs) for arm in arms}
        digests = [runs[self._name(number)] for number in range(len(self._batch))]
        self._runs += digests
        try:
            self._batch = self._next([_known(losses, each) for each in digests])
        except StopIteration as end:
            self.passes.append(TuningPass(self.at.fraction, end.value, tuple(self._runs)))
            if not self.is_done:
                self._begin(rates_around(end.value.chosen[RATE], BELOW if end.value.fails_above else FINE))

    def _next(self, losses: Sequence[Sequence[float]] | None = None) -> list[Settings]:
        try:
            return next(self._batches) if losses is None else self._batches.send(losses)
        except IllegalSpaceError as error:
            raise self.study.error("tune.space", f"{error} (in arm {self.arm.name})") from error


def _known(losses: LossOf, digests: Sequence[str]) -> tuple[float, ...]:
    found = [losses(digest) for digest in digests]
    known = [loss for loss in found if loss is not None]
    if len(known) < len(found):
        raise UnfinishedError("a tuning run has no result")
    return tuple(known)


# Tuning in a plan: its passes and where they begin, in words, and what it costs.


def remarks(study: Study, starts: Starts) -> Iterator[str]:
    """Remarks below a plan's table on tuning that is not done."""
    tune = study.tune
    if tune is None:
        return
    noun = "rates" if tune.is_rate_alone else "settings"
    planned = tune.passes[-1:] if starts else tune.passes
    passes = [trials([_settings(tune, each, starts)], noun, len(each.seeds), each.fraction) for each in planned]
    unsure = " or not clearly better than its neighbours" if tune.is_rate_alone else ""
    more = f", more where the best is at an edge{unsure}" if tune.is_grid and tune.extend else ""
    yield f"first, every arm tunes {', '.join(tune.paths)}: {', then '.join(passes)}{more}"
    if starts:
        yield f"tuning begins around known rates: {'; '.join(_start_texts(starts))}"
    for name in dict.fromkeys(name for arm in study.arms for name in arm.sources):
        yield f"{name}, on which other arms depend, is tuned before them and trained in full for each tuning seed"


def _start_texts(starts: Starts) -> Iterator[str]:
    """`pre 0.024, post 0.024 (the best of pre), from norms@cpu in this store` for each source: the middle rates."""
    by_source: dict[str, list[str]] = {}
    for arm, start in starts.items():
        middle = f"{arm} {sorted(start.rates)[len(start.rates) // 2]:g}"
        text = middle if arm == start.arm else f"{middle} (the best of {start.arm})"
        by_source.setdefault(start.source, []).append(text)
    for source, texts in by_source.items():
        yield f"{', '.join(texts)}, from {source}"


def tuning_runs(tune: TuneSpec, starts: Starts) -> float:
    """Expected cost of an arm's tuning, in full-length runs."""
    passes, last = tune.passes[-1:] if starts else tune.passes, tune.passes[-1]
    grows = tune.is_rate_alone and len(last.seeds) > 1 and tune.extend > 0 and tune.refine > 0
    listed = sum(_settings(tune, each, starts) * len(each.seeds) * each.fraction for each in passes)
    return listed + grows * MORE * len(last.seeds) * last.fraction


def _settings(tune: TuneSpec, at: Pass, starts: Starts) -> int:
    """Number of settings that a pass lists."""
    if starts or (tune.is_grid and at != tune.passes[0]):
        return len(FINE)
    if tune.space is None:
        return len(COARSE)
    return math.prod(len(axis.ends) for axis in tune.space.values()) if tune.is_grid else tune.count
