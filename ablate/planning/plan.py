"""Planning: a study → arms with equal budgets → runs with a digest each. Pure arithmetic, nothing is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path

from ablate.data import DataError, DataIdentity, DataSource, identify
from ablate.planning.budgets import Clock, StepTime, Workload, price_of_step, step_times, training_cost
from ablate.planning.checks import check, evaluated
from ablate.planning.identity import RunPlan, canonical_model, identified, request_digest
from ablate.planning.matching import Matched, match_parameters
from ablate.planning.sources import teacher_models, with_sources
from ablate.store.documents import (
    JsonObject,
    Length,
    RunData,
    RunDocument,
    RunNumerics,
    RunProbes,
)
from ablate.study.arms import Arm
from ablate.study.study import Study, StudyError
from ablate.training.spec import TrainSpec
from ablate.training.transfer import refusals
from evals.costs.machine import Speed
from evals.costs.spec import MeasureSpec
from evals.spec import EvalSpec
from zoo.costs import Cost
from zoo.registry import versions_of
from zoo.spec import ModelSpec

Identify = Callable[[DataSource], DataIdentity]

SMOKE = "smoke"
"""The scale that shows that a study runs, and nothing else."""
UTILISATION = 0.4
"""Share of the matmul peak that small models reach in training, where nothing better is known."""


@dataclass(frozen=True)
class ArmPlan:
    """One arm: what is trained, for how long, and what that costs."""

    name: str
    edits: JsonObject
    spec: ModelSpec
    train: TrainSpec
    steps: int
    cost: Cost
    cache_bytes: tuple[tuple[int, int], ...]
    """Context and declared cache bytes there, batch 1, in the training dtype; none of an encoder."""
    matched: str
    differs: dict[str, float]
    """Excess in per cent of tokens, FLOPs and parameters over the baseline's, and of seconds if known."""
    runs: tuple[RunPlan, ...]
    data: DataSource
    identity: DataIdentity
    """Identity of the corpus: its text, and its tokenizer, which may be the arm's own."""
    tuned: JsonObject = field(default_factory=dict)
    """Settings that tuning chose, by path."""
    matching: dict[str, int] = field(default_factory=dict)
    """The edit that matched the parameters, beside the arm's own `edits`."""
    step_time: StepTime | None = None
    """Measured time of a step, if the budget is in seconds."""
    tokens_before: int = 0
    """Training tokens of the arm that it starts from."""
    checkpoint: str | None = None
    """The checkpoint that it starts from, as the study names it; its training is in no count."""
    teacher: str | None = None
    """The arm or the checkpoint that it is distilled from."""

    @property
    def tokens(self) -> int:
        return self.steps * self.train.batch * self.train.context

    @property
    def parameters(self) -> int:
        return self.cost.params

    @property
    def parameters_embedding(self) -> int:
        return self.cost.params_embedding

    @property
    def flops_per_token(self) -> float:
        return self.cost.flops_per_token

    @property
    def flops(self) -> float:
        """Training FLOPs of one run."""
        return self.tokens * self.flops_per_token

    @property
    def length(self) -> Length:
        """Length of the training, that of the arm it starts from included."""
        size = self.parameters - self.parameters_embedding
        return Length.of(self.tokens, self.steps, self.tokens_before, size, self.checkpoint is not None)

    @property
    def kv_bytes_per_token(self) -> float | None:
        """Cache bytes at the training context, over its tokens: windows shorter than it make this less. With an encoder
        they are those of as many tokens of its own as of the decoder's; None of an encoder alone, which has no cache.
        """
        sizes = dict(self.cache_bytes)
        return sizes[self.train.context] / self.train.context if sizes else None

    @property
    def seconds(self) -> float | None:
        """Training time of one run, by the measured time of a step."""
        return None if self.step_time is None else self.steps * self.step_time.seconds

    def estimated_seconds(self, speed: Speed) -> float:
        """Training time of one run on such a device, unless it is known: arithmetic, and what every layer costs however
        narrow it is."""
        arithmetic = self.flops / (speed.flops_per_second * UTILISATION)
        return self.seconds or arithmetic + self.steps * len(self.spec.layers) * speed.seconds_per_layer


@dataclass(frozen=True)
class Plan:
    """All that a study would run. The first arm is the baseline."""

    study: Study
    arms: tuple[ArmPlan, ...]
    measure: MeasureSpec | None
    evals: EvalSpec | None

    @property
    def runs(self) -> tuple[RunPlan, ...]:
        """Every run, seed by seed, so that a study that is stopped early has whole seeds."""
        by_seed = zip_longest(*(arm.runs for arm in self.arms))
        return tuple(run for same_seed in by_seed for run in same_seed if run is not None)

    def sources(self) -> Plan:
        """The arms that others start from: their runs come first."""
        names = {name for arm in self.study.arms for name in arm.sources}
        return replace(self, arms=tuple(arm for arm in self.arms if arm.name in names))

    def measures(self, digest: str) -> bool:
        """Whether this run is measured. Speed and bytes are the same for every seed, so the first one of each arm is;
        what other kinds of cache do to the loss is not."""
        if self.measure is None:
            return False
        return len(self.measure.caches) > 1 or any(arm.runs[0].digest == digest for arm in self.arms if arm.runs)

    @property
    def alternating_seconds(self) -> float:
        """Least time of timing the arms against each other; 0 where that is not done."""
        return self.measure.alternating_seconds(len(self.arms)) if self.measure and self.is_timed else 0.0

    @property
    def is_timed(self) -> bool:
        """Whether its arms are timed against each other: a smoke run finds nothing out."""
        return self.measure is not None and len(self.arms) > 1 and self.study.scale != SMOKE

    @cached_property
    def measure_digest(self) -> str | None:
        return None if self.measure is None else request_digest(self.measure)

    @cached_property
    def evals_digest(self) -> str | None:
        return None if self.evals is None else request_digest(self.evals)


def make_plan(
    study: Study,
    device: str = "cpu",
    *,
    matmul: str | None = None,
    gpu: str | None = None,
    identify: Identify | None = None,
    clock: Clock | None = None,
) -> Plan:
    """The plan of a study.

    Args:
        device: "cpu" or "cuda".
        matmul: float32 matmul precision, part of a run's identity. None: "high" on CUDA, "medium" on a CPU.
        gpu: its name, part of a run's identity, where it is known.
        identify: the identity of a corpus, where it is known; otherwise the corpus is read and hashed.
        clock: where step times come from (see `ablate.running.calibration`); asked only when the budget is in seconds.

    Raises:
        StudyError: the corpus cannot be read, the budget or the context does not fit, or parameters cannot be matched.
    """
    identify = identify or identifying(study)
    check(study)
    evals = evaluated(study)
    matmul = matmul or ("high" if device == "cuda" else "medium")
    identities = [identify(arm.data) for arm in study.arms]
    specs = [_with_vocabulary(study, arm, data) for arm, data in zip(study.arms, identities, strict=True)]
    matched = match_parameters(study, specs)
    work = [
        Workload(
            each.spec, each.arm.train, RunNumerics(device=device, dtype=each.arm.train.dtype, matmul=matmul, gpu=gpu)
        )
        for each in matched
    ]
    times = step_times(study.budget, work, clock)
    teachers = teacher_models(study, matched)
    arms: list[ArmPlan] = []
    for each, workload, data, step_time in zip(matched, work, identities, times, strict=True):
        teacher = teachers.get(each.arm.name)
        arms.append(_plan_arm(study, each, workload, data, step_time, teacher, arms[0] if arms else None))
    arms = with_sources(study, arms)
    return Plan(study, tuple(arms), study.measure, evals)


def identifying(study: Study, root: Path | None = None) -> Identify:
    """Reads and hashes a corpus of the study, each once. What it returns raises StudyError.

    root: where corpora are prepared.
    """
    known: dict[str, DataIdentity] = {}

    def identity_of(data: DataSource) -> DataIdentity:
        key = data.model_dump_json()
        try:
            return known.get(key) or known.setdefault(key, identify(data, study.folder, root))
        except DataError as error:
            raise study.error("data", str(error)) from error

    return identity_of


def _with_vocabulary(study: Study, arm: Arm, data: DataIdentity) -> ModelSpec:
    given = study.vocabulary_given or "vocab_size" in arm.edits
    extra = arm.train.objective.extra_tokens(arm.train.context)
    if not given:
        return arm.model.edit({"vocab_size": data.vocab_size + extra})
    if arm.model.vocab_size < data.vocab_size + extra:
        where = arm.place("vocab_size") if "vocab_size" in arm.edits else "base.vocab_size"
        own = f" and the objective {extra}" if extra else ""
        raise study.error(where, f"the tokenizer has {data.vocab_size} tokens{own}, more than {arm.model.vocab_size}")
    return arm.model


def _plan_arm(
    study: Study,
    matched: Matched,
    workload: Workload,
    data: DataIdentity,
    step_time: StepTime | None,
    teacher: ModelSpec | None,
    baseline: ArmPlan | None,
) -> ArmPlan:
    arm, spec = matched.arm, matched.spec
    _check_width_transfer(study, arm, spec)
    costs = training_cost(arm.train, spec, study.data.widths(arm.train.context), teacher)
    steps = _steps(_budgeted(study, arm), arm, costs, step_time.seconds if step_time else None)
    tokens = steps * arm.train.batch * arm.train.context
    spent = {"tokens": tokens, "flops": tokens * costs.flops_per_token, "parameters": costs.params}
    if step_time is not None:
        spent["seconds"] = steps * step_time.seconds
    seeds = study.seeds if arm.seeds is None else arm.seeds
    runs = tuple(RunPlan(arm.name, run) for run in _identities(study, arm, workload, data, seeds, steps))
    return ArmPlan(
        name=arm.name,
        edits=arm.edits,
        spec=spec,
        train=arm.train,
        steps=steps,
        cost=costs,
        cache_bytes=_cache_bytes(study, arm, costs),
        matched=study.budget.matched,
        differs=_differs(spent, baseline),
        runs=runs,
        data=arm.data,
        identity=data,
        tuned=arm.tuned,
        matching=matched.matching,
        step_time=step_time,
    )


def _identities(
    study: Study, arm: Arm, workload: Workload, data: DataIdentity, seeds: Sequence[int], steps: int
) -> Iterator[RunDocument]:
    """The runs of an arm, which differ in their seeds."""
    spec, probes = workload.spec, study.probes
    run = RunDocument(
        digest="",
        seed=0,
        model=canonical_model(spec),
        train=workload.train.model_dump(mode="json"),
        steps=steps,
        data=RunData(digest=data.digest),
        numerics=workload.numerics,
        probes=RunProbes(every=probes.every, which=probes.which) if probes else None,
        plugins=versions_of(spec, workload.train, arm.data),
        reads=study.reads,
    )
    return identified(run, spec, workload.train, seeds)


def _check_width_transfer(study: Study, arm: Arm, spec: ModelSpec) -> None:
    reasons = [f"{reason} (in arm {arm.name})" for reason in refusals(spec, arm.train)]
    if reasons:
        raise StudyError(study.origins.problem(("train", "width_transfer"), reason) for reason in reasons)


def _budgeted(study: Study, arm: Arm) -> Study:
    """The study with what an arm may spend that starts from trained weights, or is tried on a short run."""
    share = arm.share * (arm.start.share if arm.start else 1)
    if share == 1:
        return study
    sections = study.sections.model_copy(update={"budget": study.budget.scaled(share)})
    place = "tune.fraction" if arm.share < 1 else ".".join((*arm.target, "start.fraction"))
    return replace(study, sections=sections, budget_share=place)


def _steps(study: Study, arm: Arm, costs: Cost, seconds_per_step: float | None) -> int:
    """Number of steps that the budget pays for, rounded to the nearest."""
    kind, budget = study.budget.kind, study.budget.amount
    per_step = price_of_step(kind, arm.train, costs.flops_per_token, seconds_per_step)
    if budget < per_step:
        reason = f"{budget:.3g} {kind} are less than one step of arm {arm.name} ({per_step:.3g})"
        raise study.error(study.budget_share or f"budget.{kind}", reason)
    return round(budget / per_step)


def _differs(spent: Mapping[str, float], baseline: ArmPlan | None) -> dict[str, float]:
    if baseline is None:
        return dict.fromkeys(spent, 0.0)
    base = {key: getattr(baseline, key) for key in spent}
    return {key: 100 * (value / base[key] - 1) for key, value in spent.items()}


def _cache_bytes(study: Study, arm: Arm, costs: Cost) -> tuple[tuple[int, int], ...]:
    """At the measured contexts and up to four times the training context, where windows begin to tell."""
    if costs.spec.visible == "all":
        return ()
    measured = study.measure.contexts if study.measure else ()
    contexts = {*measured, *(arm.train.context * n for n in (1, 2, 4))}
    return tuple((n, costs.cache_bytes(1, n, arm.train.dtype)) for n in sorted(contexts))
