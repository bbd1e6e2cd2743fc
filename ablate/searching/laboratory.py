"""Trials of a search: settings → an arm and its runs, refused before any compute, and the scores of those runs."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from ablate.planning.plan import ArmPlan, Plan
from ablate.running.request import Request
from ablate.store import Store
from ablate.store.documents import MeasureDocument, ResultDocument, RunDocument, SpeedPoint
from ablate.study.arms import TRAIN, Arm
from ablate.study.problems import StudyError
from ablate.study.search_constraints import CACHE, COSTS, rule
from ablate.study.search_space import Params, SearchSpace
from ablate.study.search_spec import DIRECTIONS, MEASURED, OF_CACHES, SearchSpec
from ablate.study.study import Study
from ablate.training.spec import TrainSpec
from evals.costs.spec import NO_CACHE
from zoo.edits import flatten
from zoo.errors import did_you_mean
from zoo.spec import ModelSpec

PROBES = 1000
"""Random settings that are tried; if none is legal, the space counts as empty."""
UNBUILDABLE = "cannot be built"


class IllegalError(ValueError):
    """Settings that are not trained. The text is the kind of reason, by which they are counted."""


@dataclass(frozen=True)
class Job:
    """The runs of one trial at a share of the budget: one request per seed."""

    requests: tuple[Request, ...]
    plan: ArmPlan | None = None

    @property
    def digests(self) -> tuple[str, ...]:
        return tuple(request.digest for request in self.requests)


class Laboratory(Protocol):
    """Interface between a search and the runs that it scores. Tests use one with known scores."""

    space: SearchSpace

    def job(self, params: Params, share: float) -> Job:
        """Raises IllegalError."""
        ...

    def values(self, job: Job) -> tuple[float, ...] | None:
        """The objectives, infinitely bad where training diverged; None where runs lack results."""
        ...

    def curve(self, job: Job) -> list[float]:
        """Validation losses so far of a job with one run."""
        ...


class StudyLaboratory:
    """Trials are ordinary runs of a study's base with other settings."""

    def __init__(
        self, study: Study, plan: Callable[[Study], Plan], store: Store, request: Callable[[Plan, RunDocument], Request]
    ) -> None:
        if study.search is None:
            raise ValueError("the study has no search")
        self.spec: SearchSpec = study.search
        self.study, self.store = study, store
        self.space = SearchSpace(study.builder, self.spec.space)
        self._plan, self._request = plan, request
        self._rules = {text: rule(text) for text in self.spec.constraints}
        self.planned_base = self._planned(replace(study.arms[0], seeds=()), 1.0)
        self.base = self.planned_base.arms[0]

    def job(self, params: Params, share: float = 1.0) -> Job:
        try:
            arm = self.space.arm("trial", params)
            plan = self._planned(replace(arm, seeds=self.spec.seed_numbers), share)
        except StudyError as error:
            raise IllegalError(UNBUILDABLE) from error
        found = plan.arms[-1]
        for text, each in self._rules.items():
            if not each.holds(lambda name: quantity(found, name), lambda name: quantity(self.base, name)):
                raise IllegalError(text)
        return self._job(plan)

    def control(self) -> Job:
        """The base with the seeds of trials: what fresh seeds do to it was not chosen."""
        return self._job(self._planned(replace(self.study.arms[0], seeds=self.spec.seed_numbers), 1.0))

    def _job(self, plan: Plan) -> Job:
        arm = plan.arms[-1]
        return Job(tuple(self._request(plan, run.identity) for run in arm.runs), arm)

    def _planned(self, arm: Arm, share: float) -> Plan:
        """The baseline, which is not trained, and an arm."""
        names = {name.partition(".")[0] for name in self.spec.objectives if name not in DIRECTIONS}
        measured = any(name in MEASURED for name in self.spec.objectives)
        sections = self.study.sections.model_copy(
            update={
                "budget": self.study.budget.scaled(share),
                "measure": self.study.measure if measured else None,
                "evals": self.study.evals if names else None,
                "probes": None,
            }
        )
        arms = replace(self.study.arms[0], seeds=()), arm
        return self._plan(replace(self.study, sections=sections, arms=arms, reads="judging"))

    def values(self, job: Job) -> tuple[float, ...] | None:
        if any(request.missing() for request in job.requests):
            return None
        found = [self._scores(request, job) for request in job.requests]
        return tuple(statistics.fmean(of_seeds) for of_seeds in zip(*found, strict=True))

    def _scores(self, request: Request, job: Job) -> tuple[float, ...]:
        result = self.store.read_result(request.digest)
        if result is None or job.plan is None:
            raise RuntimeError(f"run {request.digest} has no result after it ended")
        if result.status == "diverged":
            return tuple(math.inf if way == "minimize" else -math.inf for way in self.spec.objectives.values())
        return tuple(
            self._speed(name, job.requests[0]) if name in MEASURED else self._score(name, request, result, job.plan)
            for name in self.spec.objectives
        )

    def _speed(self, name: str, measured: Request) -> float:
        found = self.store.read_measure(measured.digest, str(measured.measure_digest))
        return _known(_speed(found, name.partition("_")[0]) if found else None, measured, name)

    def _score(self, name: str, request: Request, result: ResultDocument, plan: ArmPlan) -> float:
        if name == "tokens_per_second":
            return _known(result.training_speed, request, name)
        if name == "kv_bytes_per_token":
            return float(quantity(plan, name) or 0)
        if name in DIRECTIONS:
            return float(getattr(result, name))
        task, _, metric = name.partition(".")
        evals = self.store.read_evals(request.digest, str(request.evals_digest))
        score = evals.scores.get(task, {}).get(metric) if evals else None
        return _known(score.value if score else None, request, name)

    def curve(self, job: Job) -> list[float]:
        path = self.store.metrics_path(job.digests[0])
        if not path.exists():
            return []
        frame = self.store.read_metrics(job.digests[0])
        losses = frame.filter(frame["validation_loss"].is_not_null() & (frame["step"] > 0))["validation_loss"]
        return [float(loss) for loss in losses]

    def check(self) -> None:
        """Raises StudyError for a space in which nothing is legal, and for what cannot be asked of any trial."""
        self._check_evals()
        if self.study.budget.seconds is not None:
            raise self.study.error("budget.seconds", "a search plans by arithmetic: give flops or tokens")
        rng, refused, legal, example = np.random.default_rng(0), Counter[str](), 0, ""
        unknown = {name for each in self._rules.values() for name in each.names if quantity(self.base, name) is None}
        for _ in range(PROBES):
            params = self.space.random(rng)
            unknown -= {name for name in unknown if self._knows(params, name)}
            try:
                self.job(params)
                legal += 1
            except IllegalError as error:
                refused[str(error)] += 1
                if isinstance(error.__cause__, StudyError):
                    example = f" (such as: {error.__cause__.problems[0].reason})"
            if legal and not unknown:
                break
        self._refuse(unknown, refused if not legal else Counter(), example)

    def _knows(self, params: Params, name: str) -> bool:
        try:
            arm = self.space.arm("", params)
        except StudyError:
            return False
        return _number(arm.model, arm.train, name) is not None

    def _refuse(self, unknown: set[str], refused: Counter[str], example: str) -> None:
        for number, each in enumerate(self._rules.values()):
            for name in unknown.intersection(each.names):
                near = did_you_mean(name, [*COSTS, *(path for path, _ in flatten(self.base.spec.model_dump()))])
                raise self.study.error(f"search.constraints.{number}", f"unknown path or cost '{name}'{near}")
        if refused:
            reasons = ", ".join(f"{count} by '{reason}'" for reason, count in refused.most_common())
            raise self.study.error(
                "search.space", f"nothing legal among {PROBES} random settings: refused {reasons}{example}"
            )

    def _check_evals(self) -> None:
        tasks = self.study.evals.scored() if self.study.evals else ()
        for place, name in enumerate(self.spec.objectives):
            task = name.partition(".")[0]
            if name not in DIRECTIONS and task not in tasks:
                near = did_you_mean(task, tasks)
                reason = f"{name}: the study's evals have no task {task}{near}"
                raise self.study.error(f"search.objectives.{place}", reason)
            if name in MEASURED and self.study.measure is None:
                raise self.study.error(f"search.objectives.{place}", f"{name}: the study has `measure: null`")
            if name in OF_CACHES and self.base.kv_bytes_per_token is None:
                raise self.study.error(f"search.objectives.{place}", f"{name}: {NO_CACHE}")


def _speed(measured: MeasureDocument, phase: str) -> float | None:
    """Median tokens per second at the largest context that could be had, and its smallest batch."""
    points: tuple[SpeedPoint, ...] = getattr(measured, phase)
    last = max(
        (point for point in points if point.tokens_per_second),
        key=lambda point: (point.context, -point.batch),
        default=None,
    )
    return last.tokens_per_second.median if last and last.tokens_per_second else None


def _known(value: float | None, request: Request, name: str) -> float:
    if value is None:
        raise RuntimeError(f"run {request.digest} has no {name} after it ended")
    return value


def quantity(plan: ArmPlan, name: str) -> float | None:
    """A cost of a planned arm, or the number at a path of it; None if there is no such path or number. An encoder's
    cache takes 0 bytes."""
    if name in COSTS:
        return float(getattr(plan, name) or 0)
    if match := CACHE.fullmatch(name):
        return float(plan.cost.cache_bytes(1, int(match[1]), plan.train.dtype))
    return _number(plan.spec, plan.train, name)


def _number(spec: ModelSpec, train: TrainSpec, path: str) -> float | None:
    """The number at a path, ratios and defaults resolved."""
    blocks = {"block": spec.block.resolve(spec.d_model), "blocks": {name: spec.named(name) for name in spec.blocks}}
    here: Any = {**dict(spec), **blocks, TRAIN: train}
    for key in path.split("."):
        here = here.get(key) if isinstance(here, Mapping) else getattr(here, key, None)
    return float(here) if isinstance(here, int | float) and not isinstance(here, bool) else None
