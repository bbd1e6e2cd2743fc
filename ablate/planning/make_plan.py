"""Planning: a study → arms with equal budgets → runs, each with a digest. Pure arithmetic, nothing is trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ablate.data import DataError, DataIdentity, DataSource, UnreachableError, identify, vocabulary
from ablate.planning.checks import check, evaluated
from ablate.planning.identity import RunPlan, canonical_model, digest_of_seed
from ablate.planning.plan import ArmPlan, Clock, Plan, StepTime, Workload, in_flops, steps_of, training_cost
from ablate.study.arms import Arm
from ablate.study.study import Study, StudyError
from ablate.training.transfer import depth_refusals, refusals
from store.documents import RunData, RunDocument, RunNumerics, RunProbes
from store.extensions import module_of, modules_of
from zoo.costs import Cost
from zoo.errors import SpecError
from zoo.settings.edits import flatten
from zoo.settings.registry import versions_of
from zoo.spec import ModelSpec

Identify = Callable[[DataSource], DataIdentity]


class Matched(NamedTuple):
    """An arm's model after matching, and the edit that matching added to the arm's own; empty if none was needed."""

    arm: Arm
    spec: ModelSpec
    matching: dict[str, int]


def make_plan(
    study: Study,
    device: str = "cpu",
    *,
    matmul: str | None = None,
    gpu: str | None = None,
    identify: Identify | None = None,
    clock: Clock | None = None,
) -> Plan:
    """Plan a study.

    Args:
        device: "cpu" or "cuda".
        matmul: float32 matmul precision, part of a run's identity. None: "high" on CUDA, "medium" on a CPU.
        gpu: name of the GPU, part of a run's identity; None if unknown.
        identify: returns the identity of a corpus; None reads and hashes the corpus.
        clock: returns step times; called only if the budget is in seconds.

    Raises:
        StudyError: the corpus cannot be read, the budget or the context does not fit, or parameters cannot be matched.
    """
    identify = identify or identifying(study)
    check(study)
    evals = evaluated(study)
    matmul = matmul or ("high" if device == "cuda" else "medium")
    identities = [identify(arm.data) for arm in study.arms]
    specs = [_with_vocabulary(study, arm, data) for arm, data in zip(study.arms, identities, strict=True)]
    matched = _matched(study, specs)
    study = in_flops(study, matched[0].arm.train, matched[0].spec)
    work = [
        Workload(
            each.spec, each.arm.train, RunNumerics(device=device, dtype=each.arm.train.dtype, matmul=matmul, gpu=gpu)
        )
        for each in matched
    ]
    times: Sequence[StepTime | None] = [None] * len(work)
    if study.budget.seconds is not None:
        if clock is None:
            raise ValueError("a budget in seconds needs a clock")
        times = clock(work)
    sourcing = modules_of(__name__)
    beside = {arm: model for each in sourcing for arm, model in each.read_beside(study, matched).items()}
    arms: list[ArmPlan] = []
    for each, workload, data, step_time in zip(matched, work, identities, times, strict=True):
        other = beside.get(each.arm.name)
        arms.append(_plan_arm(study, each, workload, data, step_time, other, arms[0] if arms else None))
    for wing in sourcing:
        arms = list(wing.with_sources(study, arms))
    return Plan(study, tuple(arms), study.measure, evals)


def identifying(study: Study, root: Path | None = None, *, unread: bool = False) -> Identify:
    """A function that reads and hashes corpora of the study, each once; it raises StudyError.

    root: the folder of prepared corpora. unread: give a corpus whose hub cannot be reached an open identity
    (`DataIdentity.open`) instead of raising.
    """
    known: dict[str, DataIdentity] = {}

    def found(data: DataSource) -> DataIdentity:
        try:
            return identify(data, study.folder, root)
        except UnreachableError as error:
            if not unread:
                raise
            return DataIdentity.open(vocabulary(data, study.folder), str(error))

    def identity_of(data: DataSource) -> DataIdentity:
        key = data.model_dump_json()
        try:
            return known.get(key) or known.setdefault(key, found(data))
        except DataError as error:
            raise study.error("data", str(error)) from error

    return identity_of


def _matched(study: Study, specs: Sequence[ModelSpec]) -> list[Matched]:
    """The arms, with parameters matched if the budget asks for it."""
    if (match := study.budget.parameters) is None:
        return [Matched(arm, spec, {}) for arm, spec in zip(study.arms, specs, strict=True)]
    if (wing := module_of(f"{__name__}.matched")) is None:
        raise study.error("budget.parameters", "this installation matches no parameters")
    return list(wing.match_parameters(study, specs, match))


def _with_vocabulary(study: Study, arm: Arm, data: DataIdentity) -> ModelSpec:
    given = study.vocabulary_given or "vocab_size" in arm.edits
    extra = arm.train.objective.extra_tokens(arm.train.context)
    if not given:
        try:
            return arm.model.edit({"vocab_size": data.vocab_size + extra})
        except SpecError as error:
            where, reason = ("data", str(error)) if error.path == "vocab_size" else (f"base.{error.path}", error.reason)
            raise study.error(where, reason) from error
    if arm.model.vocab_size < data.vocab_size + extra:
        where = arm.place("vocab_size") if "vocab_size" in arm.edits else "base.vocab_size"
        own = f" and the objective adds {extra}" if extra else ""
        raise study.error(where, f"the tokenizer has {data.vocab_size} tokens{own}, more than {arm.model.vocab_size}")
    return arm.model


def _plan_arm(
    study: Study,
    matched: Matched,
    workload: Workload,
    data: DataIdentity,
    step_time: StepTime | None,
    beside: ModelSpec | None,
    baseline: ArmPlan | None,
) -> ArmPlan:
    arm, spec = matched.arm, matched.spec
    _check_transfer(study, arm, spec)
    costs = training_cost(arm.train, spec, study.data.widths(arm.train.context), beside)
    steps = steps_of(study, arm, costs, step_time.seconds if step_time else None)
    tokens = steps * arm.train.tokens
    spent = {"tokens": tokens, "flops": tokens * costs.flops_per_token, "parameters": costs.params}
    if step_time is not None:
        spent["seconds"] = steps * step_time.seconds
    seeds = study.seeds if arm.seeds is None else arm.seeds
    run = _identity(study, arm, workload, data, steps)
    digest = digest_of_seed(run, spec, arm.train)
    runs = tuple(RunPlan(arm.name, digest(seed), seed, run) for seed in seeds)
    return ArmPlan(
        name=arm.name,
        edits=arm.edits,
        cell=arm.cell,
        spec=spec,
        train=arm.train,
        steps=steps,
        cost=costs,
        cache_bytes=_cache_bytes(study, arm, costs),
        matched=study.budget.matched,
        differs={key: 100 * (value / getattr(baseline, key) - 1) if baseline else 0.0 for key, value in spent.items()},
        runs=runs,
        data=arm.data,
        identity=data,
        tuned=arm.tuned,
        matching=matched.matching,
        step_time=step_time,
    )


def _identity(study: Study, arm: Arm, workload: Workload, data: DataIdentity, steps: int) -> RunDocument:
    """Identity that the runs of an arm share, with digest and seed left empty."""
    spec, probes = workload.spec, study.probes
    return RunDocument(
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


def _check_transfer(study: Study, arm: Arm, spec: ModelSpec) -> None:
    found = {"width_transfer": refusals(spec, arm.train), "depth_transfer": depth_refusals(spec, arm.train)}
    own = {path for path, _ in flatten(arm.edits)}
    problems = []
    for name, reasons in found.items():
        setting = f"train.{name}"
        is_own = any(path.startswith(setting) for path in own)
        place = arm.place(setting) if is_own else setting
        problems += [study.origins.problem(tuple(place.split(".")), f"{each} (in arm {arm.name})") for each in reasons]
    if problems:
        raise StudyError(problems)


def _cache_bytes(study: Study, arm: Arm, costs: Cost) -> tuple[tuple[int, int], ...]:
    """(context, bytes) at the measured contexts and at 1, 2 and 4 times the training context, where sliding windows
    begin to save memory."""
    if costs.spec.visible == "all":
        return ()
    measured = study.measure.contexts if study.measure else ()
    contexts = {*measured, *(arm.train.context * n for n in (1, 2, 4))}
    return tuple((n, costs.cache_bytes(1, n, arm.train.dtype)) for n in sorted(contexts))
