"""`ablate.plan_on`: a study's time and memory on a device that is not at hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from ablate.api.study_argument import StudyLike
from ablate.data import DataIdentity, DataSource, vocabulary
from ablate.planning.campaign import comparable_rungs
from ablate.planning.durations import least_seconds
from ablate.planning.make_plan import make_plan
from ablate.planning.plan import UTILISATION, ArmPlan, Plan
from ablate.planning.plan_shown import tuning_runs
from ablate.readable import clock
from ablate.study.reading import load_study
from ablate.study.scales import scale_names
from ablate.study.study import Study
from ablate.study.written import Sets
from ablate.wings.foretell.roofline import SLOWER, StepSeconds, step_seconds
from ablate.wings.foretell.step_work import StepWork, step_work
from evals.costs.devices import Device, DeviceError
from evals.costs.devices import device as device_named
from store.documents import JsonObject
from store.errors import ArgumentError
from zoo.kernels.fla import WRITTEN_OUT

START_SECONDS = {False: 20.0, True: 30.0}
"""Assumed time before a run's first step, by whether it is compiled: process start, and load of the cached program."""
COMPILE_SECONDS = 60.0
"""Assumed compilation time of an arm's first run."""


@dataclass(frozen=True)
class ForetoldArm:
    """Predicted costs of an arm on a device.

    Attributes:
        step: the predicted time of a training step; None for an arm with a teacher, and if a step's shapes depend on
            its data: then time follows from FLOPs alone.
        work: kernels, bytes, FLOPs and memory of a step; None as above.
        runs: the number of runs; tuning runs count by their length.
        run_seconds: time of one run's training, start included.
    """

    plan: ArmPlan
    work: StepWork | None
    step: StepSeconds | None
    runs: float
    run_seconds: float

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def seconds(self) -> float:
        return self.runs * self.run_seconds + COMPILE_SECONDS * self.plan.train.compile


@dataclass(frozen=True)
class Foretold:
    """Costs of a study on a device, predicted by a roofline: nothing was measured.

    Attributes:
        study: the study at its scale.
        device: the data sheet, and the shares of its peaks that programs reach.
        rungs: the arms of each rung of the study's ladder; the last rung is compared.
        seconds: time of all runs in sequence, with measurements and without evaluations.
        scales: name, hours and whether these fit, for each scale that was tried; empty if `hours` was not given.
    """

    study: Study
    device: Device
    rungs: tuple[tuple[ForetoldArm, ...], ...]
    seconds: float
    scales: tuple[tuple[str, float, bool], ...] = ()

    @property
    def arms(self) -> tuple[ForetoldArm, ...]:
        """The arms that are compared: those of the last rung."""
        return self.rungs[-1]

    def document(self) -> JsonObject:
        """JSON form, for `ablate plan --on … --json`."""
        return {
            "study": self.study.name,
            "scale": self.study.scale,
            "device": self.device.name,
            "seconds": self.seconds,
            "arms": [_arm_json(arm) for arm in self.arms],
            "scales": [{"scale": name, "hours": hours, "fits": fits} for name, hours, fits in self.scales],
        }

    def table(self) -> list[tuple[str, ...]]:
        """One row of text for each arm, the header first."""
        head = ("arm", "parameters", "steps", "step", "bound by", "bytes", "kernels", "matmuls", "memory", "attention")
        return [(*head, "run", "runs"), *map(_row, self.arms)]

    def notes(self) -> list[str]:
        """Lines below the table."""
        return list(_notes(self))


def plan_on(
    study: StudyLike,
    device: str = "h100",
    *,
    scale: str | None = None,
    sets: Sets = (),
    hours: float | None = None,
) -> Foretold:
    """Predict the time, the memory and the cost of a study on a device that is not at hand, without a network.

    A training step is traced on tensors without data: its kernels, the bytes that they move and the FLOPs of its
    products are counted, and a roofline says how long a device takes. Takes a second or two for each arm.

    Args:
        study, sets: as in `ablate.run`.
        device: a device that has a data sheet here, such as `h100` or `rtx4090`.
        scale: one of the study's scales; None: `gpu-hour`, or the study's own for a GPU.
        hours: choose the study's longest GPU scale that fits in this time, else its shortest, unless `scale` is given.

    Returns:
        Arms with the predicted time of a step and of all runs, what bounds a step, and the scales that were tried.

    Raises:
        StudyError: the study cannot be read or planned.
        ArgumentError: there is no such device, or it lacks the rate of a type.

    Example:
        >>> found = ablate.plan_on("norm_placement", "h100", hours=8)
        >>> found.study.scale, [arm.step.bound for arm in found.arms]
    """
    try:
        sheet = device_named(device)
        if hours is None:
            return _foretold(load_study(study, scale, sets, device="cuda"), sheet)
        if not hours > 0:
            raise ArgumentError("hours", f"expected a number above 0, not {hours:g}")
        first = load_study(study, scale, sets, device="cuda")
        names = [scale] if scale else [name for name in scale_names(first.written.document) if name.startswith("gpu")]
        tried = [_foretold(load_study(study, name, sets, device="cuda"), sheet) for name in names]
        found = tuple((each.study.scale, each.seconds / 3600, each.seconds <= 3600 * hours) for each in tried)
        fitting = [each for each in tried if each.seconds <= 3600 * hours]
        # The longest that fits, else the shortest of all.
        chosen = max(fitting, key=lambda each: each.seconds) if fitting else min(tried, key=lambda each: each.seconds)
        return replace(chosen, scales=found)
    except DeviceError as error:
        raise ArgumentError("on", str(error)) from error


def _foretold(study: Study, device: Device) -> Foretold:
    tuned = tuning_runs(study.tune) if study.tune is not None else 0.0
    plans = [_plan(each) for each in comparable_rungs(study, _plan)]
    rungs = tuple(tuple(_arm(plan, arm, device, tuned) for arm in plan.arms) for plan in plans)
    training = sum(arm.seconds for rung in rungs for arm in rung)
    measuring = sum(len(plan.arms) * least_seconds(plan.measure) + plan.alternating_seconds for plan in plans)
    return Foretold(study, device, rungs, training + measuring)


def _plan(study: Study) -> Plan:
    """The plan on data that is not read: costs depend only on the vocabulary."""

    def unread(data: DataSource) -> DataIdentity:
        return DataIdentity.open(vocabulary(data, study.folder), "not read")

    return make_plan(study, "cuda", identify=unread)


def _arm(plan: Plan, arm: ArmPlan, device: Device, tuned: float) -> ForetoldArm:
    train = arm.train
    work = None if arm.teacher else step_work(arm.spec, train, max(plan.study.data.widths(train.context)))
    if work is None:
        flops = device.training_flops_per_second(train.dtype)
        step, seconds = None, arm.flops / (UTILISATION * flops)
    else:
        step = step_seconds(work.work, device, train.dtype, compiled=train.compile, slower=SLOWER[train.compile])
        seconds = arm.steps * step.seconds
    return ForetoldArm(arm, work, step, len(arm.runs) + tuned, seconds + START_SECONDS[train.compile])


def _arm_json(arm: ForetoldArm) -> JsonObject:
    return {
        "name": arm.name,
        "parameters": arm.plan.parameters,
        "steps": arm.plan.steps,
        "runs": arm.runs,
        "run_seconds": arm.run_seconds,
        "peak_memory_bytes": arm.work.peak_bytes if arm.work else None,
        "attention": arm.work.attention if arm.work else None,
        "work": asdict(arm.work.work) if arm.work else None,
        "step": {**asdict(arm.step), "bound": arm.step.bound} if arm.step else None,
    }


def _row(arm: ForetoldArm) -> tuple[str, ...]:
    first = (arm.name, f"{arm.plan.parameters:,}", f"{arm.plan.steps:,}")
    last = (clock(arm.run_seconds), f"{arm.runs:g}")
    if arm.work is None or arm.step is None:
        return (*first, *["–"] * 7, *last)
    work = arm.work.work
    return (
        *first,
        f"{1000 * arm.step.seconds:.3g} ms",
        arm.step.bound,
        f"{work.bytes / 1e9:.3g} GB",
        f"{work.launches:,}",
        f"{work.flops / 1e12:.3g} TFLOP",
        f"{arm.work.peak_bytes / 2**30:.3g} GiB",
        arm.work.attention or "–",
        *last,
    )


def _notes(found: Foretold) -> Iterator[str]:
    device, arms = found.device, found.arms
    for name, hours, fits in found.scales:
        yield f"scale {name}: {hours:.2g} hours{'' if fits else ', too long'}"
    if found.scales and not any(fits for _, _, fits in found.scales):
        yield f"no scale fits in the given hours; showing the shortest, {found.study.scale}"
    yield (
        f"scale {found.study.scale} on one {device.title}: about {clock(found.seconds)} in all, tuning and measuring"
        " included, evaluations not"
    )
    kinds: dict[str, list[str]] = {}
    for arm in arms:
        if arm.work:
            kinds.setdefault(arm.work.attention or "none", []).append(arm.name)
    if len(kinds) > 1:
        few = {
            kind: ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"
            for kind, names in kinds.items()
        }
        by_kind = "; ".join(f"{kind}: {names}" for kind, names in few.items())
        yield f"arms differ in their attention kernels ({by_kind}): part of a difference in time is due to the kernels"
    if any(WRITTEN_OUT in (arm.work.attention or "") for arm in arms if arm.work):
        yield "scans of linear mixers are counted as unfused PyTorch; fla-core's kernels move fewer bytes"
    for arm in arms:
        if arm.work is not None and arm.work.peak_bytes > device.memory_bytes:
            needed, there = arm.work.peak_bytes / 2**30, device.memory_bytes / 2**30
            yield f"arm {arm.name} does not fit: it needs {needed:.3g} GiB of {there:.3g}"
        if arm.work is None:
            yield f"arm {arm.name}: step not traced; time estimated from its FLOPs at {UTILISATION:.0%} of the peak"
    yield (
        f"predicted, not measured: a roofline at {device.compute_share:.0%} of the peak FLOP/s and"
        f" {device.bandwidth_share:.0%} of the bandwidth, times {SLOWER[True]:g} for compiled steps and"
        f" {SLOWER[False]:g} for others, as fitted on an H200"
    )
