"""Trials of a search: settings → an arm and its runs → scores. Illegal settings are refused before any training."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from ablate.planning.plan import ArmPlan, Plan, training_cost
from ablate.running.request import Request
from ablate.study.arms import Arm
from ablate.study.complaints import StudyError
from ablate.study.study import Study
from ablate.training.spec import TrainSpec
from ablate.wings.search.search_constraints import CACHE, rule
from ablate.wings.search.search_constraints import MEASURED as LIMITED
from ablate.wings.search.search_space import Params, SearchSpace, number_at
from ablate.wings.search.search_spec import DIRECTIONS, MEASURED, SearchSpec
from store import Store
from store.documents import MeasureDocument, ResultDocument, RunDocument, SpeedPoint
from zoo.costs import Cost
from zoo.spec import ModelSpec


@dataclass(frozen=True)
class Draft:
    """An arm before planning. widths: row widths that training cycles through."""

    arm: Arm
    vocabulary: int
    widths: tuple[int, ...]

    @cached_property
    def spec(self) -> ModelSpec:
        given = "vocab_size" in self.arm.edits
        return self.arm.model if given else self.arm.model.edit({"vocab_size": self.vocabulary})

    @property
    def train(self) -> TrainSpec:
        return self.arm.train

    @cached_property
    def cost(self) -> Cost:
        return training_cost(self.train, self.spec, self.widths)


def quantity(model: ArmPlan | Draft, name: str) -> float | None:
    """A cost of a model, or the number at a path of its settings; None if there is none. An encoder's KV cache takes
    0 bytes."""
    match name:
        case "parameters":
            return float(model.cost.params)
        case "parameters_embedding":
            return float(model.cost.params_embedding)
        case "flops_per_token":
            return float(model.cost.flops_per_token)
        case "kv_bytes_per_token":
            return model.cost.cache_bytes(1, model.train.context, model.train.dtype) / model.train.context
    if match := CACHE.fullmatch(name):
        return float(model.cost.cache_bytes(1, int(match[1]), model.train.dtype))
    return number_at(model.spec, model.train, name)


PRUNING_DELAY = 0.2
"""Share of a run during which no trial is pruned."""
UNBUILT = 10.0
"""Distance assigned to settings that cannot be built, as theirs from the constraints is unknown; larger than most."""
NUMBER = re.compile(r"\d[\d.,]*")


class IllegalError(ValueError):
    """Illegal settings, which are not trained. The message is the category of the reason, by which they are counted."""


@dataclass(frozen=True)
class Job:
    """The runs of one trial at a share of the budget: one request per seed."""

    requests: tuple[Request, ...]
    plan: ArmPlan | None = None
    validations: int = 1
    """Number of validations of a run."""
    warmup: float = 0.0
    """Share of the steps over which the learning rate rises."""

    @property
    def digests(self) -> tuple[str, ...]:
        return tuple(request.digest for request in self.requests)

    @property
    def wait(self) -> int:
        """Number of validations before which no pruner may end the job: losses during warm-up and soon after say
        little."""
        return math.ceil(max(self.warmup, PRUNING_DELAY) * self.validations - 1e-9)


class StudyTrialRunner:
    """Runs trials as ordinary runs of a study's base with other settings. Tests override what gives scores."""

    def __init__(
        self, study: Study, plan: Callable[[Study], Plan], store: Store, request: Callable[[Plan, RunDocument], Request]
    ) -> None:
        if study.search is None:
            raise ValueError("the study has no search")
        self.spec: SearchSpec = study.search
        self.study, self.store = study, store
        self.space = SearchSpace(study.builder, self.spec.space)
        self._plan, self._request = plan, request
        self.rules = {text: rule(text) for text in self.spec.constraints}
        self.planned_base = self._planned(replace(study.arms[0], seeds=()), 1.0)
        self.base = self.planned_base.arms[0]
        self._control: Job | None = None
        self._widths = tuple(study.data.widths(study.train.context))

    def job(self, params: Params, share: float = 1.0, repeat: int = 0) -> Job:
        """Runs of settings, which had `repeat` trials before, at a share of the budget. Raises IllegalError."""
        if wrong := self.distances(params):
            raise IllegalError(next(iter(wrong)))
        seeds = tuple(seed + repeat * self.spec.seeds for seed in self.spec.seed_numbers)
        try:
            return self._job(self._planned(replace(self.space.arm("trial", params), seeds=seeds), share))
        except StudyError as error:
            raise IllegalError(_cause(error)) from error

    def distances(self, params: Params) -> Mapping[str, float]:
        """Relative distance from every violated constraint; `UNBUILT` per problem if the settings cannot be built."""
        try:
            arm = self.space.arm("trial", params)
        except StudyError as error:
            return {_cause(error): UNBUILT * len(error.problems)}
        own: ArmPlan | Draft = Draft(arm, self.base.spec.vocab_size, self._widths)
        if self.study.budget.parameters is not None:  # planning changes a size to match the base's parameters
            own = self._planned(replace(arm, seeds=()), 1.0).arms[-1]
        draft, base = partial(quantity, own), partial(quantity, self.base)
        found = {text: each.distance(draft, base) for text, each in self.rules.items() if not each.is_measured}
        return {text: far for text, far in found.items() if far > 0}

    def beyond(self, job: Job) -> Mapping[str, float]:
        """Relative distance of an ended job from every limit on measurements: 0 within the limit."""
        measured = {text: each for text, each in self.rules.items() if each.is_measured}
        of_base = any(each.of_base for each in measured.values())
        base = partial(self._measured, self.control()) if of_base else lambda _: None
        model = partial(self._measured, job)
        return {text: each.distance(model, base) for text, each in measured.items()}

    def _measured(self, job: Job, name: str) -> float | None:
        """Mean of a measurement over a job's runs, or a quantity of their model; None if it is not available."""
        if job.plan is None or name not in LIMITED:
            return quantity(job.plan, name) if job.plan else None
        results = [self.store.read_result(digest) for digest in job.digests]
        if any(result is None or result.status == "diverged" for result in results):
            return None
        pairs = zip(job.requests, results, strict=True)
        scores = [self._objective(name, request, result, job) for request, result in pairs if result is not None]
        return statistics.fmean(scores)

    def control(self) -> Job:
        """The base with the trials' seeds, as the control of the search. The base was not selected by its scores."""
        self._control = self._control or self.seeded(self.study.arms[0], self.spec.seed_numbers)
        return self._control

    def seeded(self, arm: Arm, seeds: Sequence[int]) -> Job:
        """Runs of an arm at the full budget."""
        return self._job(self._planned(replace(arm, seeds=tuple(seeds)), 1.0))

    def _job(self, plan: Plan) -> Job:
        arm = plan.arms[-1]
        requests = tuple(self._request(plan, run.identity) for run in arm.runs)
        warmup = arm.train.warmup_steps(arm.steps) / arm.steps
        return Job(requests, arm, math.ceil(1 / arm.train.validate_every - 1e-9), warmup)

    def _planned(self, arm: Arm, share: float) -> Plan:
        """Plan of an arm, preceded by the baseline if the arm's budget depends on it."""
        wanted = {*self.spec.objectives, *(name for each in self.rules.values() for name in each.names)}
        names = {name.partition(".")[0] for name in self.spec.objectives if name not in DIRECTIONS}
        sections = self.study.sections.model_copy(
            update={
                "budget": self.study.budget.scaled(share),
                "measure": self.study.measure if wanted.intersection(MEASURED) else None,
                "evals": self.study.evals if names else None,
                "probes": None,
            }
        )
        budget = self.study.budget
        is_alone = budget.parameters is None and budget.tokens_per_parameter is None  # no baseline needed
        arms = (arm,) if is_alone else (replace(self.study.arms[0], seeds=()), arm)
        return self._plan(replace(self.study, sections=sections, arms=arms, reads="judging"))

    def values(self, job: Job) -> tuple[float, ...] | None:
        """Mean objectives over the seeds, infinitely bad if a run diverged; None if runs lack results."""
        if any(request.missing() for request in job.requests):
            return None
        worst = [math.inf if way == "minimize" else -math.inf for way in self.spec.objectives.values()]
        found = []
        for request in job.requests:
            result = self.store.read_result(request.digest)
            if result is None:
                raise RuntimeError(f"run {request.digest} has no result after it ended")
            scores = (self._objective(name, request, result, job) for name in self.spec.objectives)
            found.append(worst if result.status == "diverged" else list(scores))
        return tuple(statistics.fmean(of_seeds) for of_seeds in zip(*found, strict=True))

    def _objective(self, name: str, request: Request, result: ResultDocument, job: Job) -> float:
        if name in MEASURED:
            measured = job.requests[0]
            speeds = self.store.read_measure(measured.digest, str(measured.measure_digest))
            return _known(_speed(speeds, name.partition("_")[0]) if speeds else None, measured, name)
        if job.plan is None:
            raise RuntimeError(f"run {request.digest} was not planned")
        if name == "tokens_per_second":
            return _known(result.training_speed, request, name)
        if name == "kv_bytes_per_token":
            return float(quantity(job.plan, name) or 0)
        if name in DIRECTIONS:
            return float(getattr(result, name))
        task, _, metric = name.partition(".")
        evals = self.store.read_evals(request.digest, str(request.evals_digest))
        score = evals.scores.get(task, {}).get(metric) if evals else None
        return _known(score.value if score else None, request, name)

    def curve(self, job: Job) -> list[float]:
        """Validation losses so far of a job with one run."""
        path = self.store.metrics_path(job.digests[0])
        if not path.exists():
            return []
        frame = self.store.read_metrics(job.digests[0])
        losses = frame.filter(frame["validation_loss"].is_not_null() & (frame["step"] > 0))["validation_loss"]
        return [float(loss) for loss in losses]


def _speed(measured: MeasureDocument, phase: str) -> float | None:
    """Median tokens per second at the largest measured context, and the smallest batch there."""
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


def _cause(error: StudyError) -> str:
    """Category of why settings cannot be built, without the numbers: `kv heads do not divide heads`."""
    problem = error.problems[0]
    path = problem.path.removeprefix("search.space.")
    words = " ".join(NUMBER.sub("", problem.reason.removeprefix(f"{path}: ")).split())
    return words if path in words else f"{path}: {words}"
