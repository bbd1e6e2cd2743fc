"""Which runs begin with the same steps, and how a run begins from the state of another.

Two runs of one identity but for their length and schedule are the same, bit for bit, while their learning rates are:
batches, masks and updates depend on the seed and the step alone. With `wsd` that is the stable phase of the one that
decays first (the donor), if both have as many steps of warm-up. An average of the weights follows from the length, too:
its runs share nothing. So do the steps at which a run is validated and probed: runs share no step after the first
record that the donor lacks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ablate.planning.plan import Plan
from ablate.running.request import Request
from ablate.training.optim import decay_steps
from ablate.training.probes import ProbeSpec
from ablate.training.reader import validation_is_due
from ablate.training.spec import TrainSpec
from ablate.training.trained import read_state, write_state
from evals.costs.machine import Speed
from store import Store, StoreError
from store.documents import RunDocument

LOG = logging.getLogger(__name__)
SCHEDULE = {"warmup", "schedule", "final_lr", "decay", "validate_every"}
"""Settings of training in which kin may differ."""
Family = tuple[RunDocument, ...]
"""Runs that begin with the same steps, by the length of their stable phases; then in the order of the plan."""


def families(runs: Iterable[RunDocument]) -> Iterator[Family]:
    """Every family of two or more of these runs."""
    alike: dict[tuple[str, int], list[tuple[int, RunDocument]]] = {}
    for run in {run.digest: run for run in runs}.values():
        if run.train.get("schedule") in ("constant", "wsd") and run.train.get("average") is None:
            train, spec = {name: value for name, value in run.train.items() if name not in SCHEDULE}, TrainSpec.of(run)
            rest = run.model_copy(update={"digest": "", "steps": 0, "train": train}).model_dump_json()
            found = alike.setdefault((rest, spec.warmup_steps(run.steps)), [])
            found.append((stable_steps(run.steps, spec), run))
    for group in alike.values():
        if len(group) > 1:
            yield tuple(run for _, run in sorted(group, key=lambda each: each[0]))


def stable_steps(steps: int, spec: TrainSpec) -> int:
    """Number of first steps whose rates do not depend on the length, given the peak and the steps of warm-up."""
    if spec.schedule == "wsd":  # the first step of the decay still has the peak rate
        return min(steps, steps - decay_steps(steps, spec) + 1)
    return steps if spec.schedule == "constant" else 0


def shared_steps(donor: RunDocument, heir: RunDocument) -> int:
    """Number of first steps that `donor` takes for `heir`, which comes later in their family."""
    return _recorded(Records.of(donor), Records.of(heir), stable_steps(donor.steps, TrainSpec.of(donor)))


class Records(NamedTuple):
    """The steps at which a run is validated and probed."""

    steps: int
    validate_every: float
    probes: ProbeSpec | None

    @classmethod
    def of(cls, run: RunDocument) -> Records:
        probes = ProbeSpec(every=run.probes.every, which=run.probes.which) if run.probes else None
        return cls(run.steps, TrainSpec.of(run).validate_every, probes)

    def validated(self, step: int) -> bool:
        return step == 0 or validation_is_due(step, self.steps, self.validate_every)

    def probed(self, step: int) -> bool:
        return self.probes is not None and self.probes.due(step, self.steps)


@cache
def _recorded(donor: Records, heir: Records, last: int) -> int:
    """Number of first steps, up to `last`, for which a run has all records of another."""
    for step in range(1, last + 1):
        if (heir.validated(step) and not donor.validated(step)) or (heir.probed(step) and not donor.probed(step)):
            return step - 1
    return last


def donors(family: Family) -> dict[str, tuple[RunDocument, int]]:
    """The run that takes the most steps for each run of a family, if any does, with their number; by digest."""
    found = {}
    for number, heir in enumerate(family):
        steps, at = max(((shared_steps(donor, heir), at) for at, donor in enumerate(family[:number])), default=(0, 0))
        if steps:
            found[heir.digest] = family[at], steps
    return found


def with_kin(requests: Sequence[Request], runs: Iterable[RunDocument]) -> list[Request]:
    """Requests of a stage that name the family of their run. runs: all of the stage, in the order of the plan. Sharded
    runs have none: their state is gathered only where all processes know of it."""
    family = {run.digest: found for found in families(runs) for run in found}
    kin = [() if each.execution.shard else family.get(each.digest, ()) for each in requests]
    return [each.model_copy(update={"kin": found}) for each, found in zip(requests, kin, strict=True)]


def shared_seconds(plans: Sequence[Plan], missing: Mapping[str, Sequence[str]], store: Store, speed: Speed) -> float:
    """Estimated seconds of the steps that missing runs need not take, if runs go from short to long."""
    arms = {run.digest: (arm, run.identity) for plan in plans for arm in plan.arms for run in arm.runs}
    seconds = 0.0
    for family in families(identity for _, identity in arms.values()):
        for heir, (donor, steps) in donors(family).items():
            has_state = "train" in missing[donor.digest] or store.shared_path(donor.digest).exists()
            if has_state and "train" in missing[heir]:
                arm, run = arms[heir]
                seconds += arm.estimated_seconds(speed) * steps / run.steps
    return seconds


def begin(store: Store, request: Request) -> None:
    """Give a run that has no state yet that of the run which took the most steps for it, with its logs, as if this run
    had been stopped there."""
    own = request.identity
    if not request.kin or store.state_path(own.digest).exists():
        return
    older = request.kin[: request.kin.index(own)]
    for donor in sorted(older, key=lambda run: shared_steps(run, own), reverse=True):
        try:
            state = read_state(store, donor.digest, store.shared_path(donor.digest))
            step = state["place"]["step"]
            if step > shared_steps(donor, own):
                continue
            _copy_logs(store, donor, own, step)
            store.check_logs(donor.digest, state["logs"])  # after copying: a donor that starts again cuts its logs
        except FileNotFoundError:  # not there yet, or no longer
            continue
        except StoreError as error:
            LOG.warning("shares no steps with run %s: %s", donor.digest, error)
            continue
        place = state["place"] | {"shared_steps": step, "shared_with": donor.digest, "wall_seconds": 0.0}
        write_state(store.state_path(own.digest), state | {"place": place, "logs": store.log_seals(own.digest)})
        LOG.info("begins after step %d of run %s, which is the same up to there", step, donor.digest)
        return


def _copy_logs(store: Store, donor: RunDocument, own: RunDocument, last: int) -> None:
    """Copy what this run would have logged up to step `last`. Every training step has a rate, a validation has none."""
    store.truncate_logs(own.digest, -1)
    due = Records.of(own)
    steps = (each for each in store.metrics_log(donor.digest).records() if each.step <= last)
    wanted = (each for each in steps if "lr" in each.model_fields_set or due.validated(each.step))
    store.append_metrics(own.digest, *wanted)
    if own.probes is not None:
        probed = (each for each in store.probes_log(donor.digest).records() if each.step <= last)
        store.append_probes(own.digest, (each for each in probed if due.probed(each.step)))


def copies(store: Store, request: Request) -> Mapping[int, Path]:
    """The step after which a run leaves its state for others, which have no result yet, with the file."""
    found = donors(request.kin).items()
    steps = [steps for heir, (run, steps) in found if run.digest == request.digest and store.read_result(heir) is None]
    return {min(steps): store.shared_path(request.digest)} if steps else {}


def end(store: Store, request: Request) -> None:
    """Remove the states that no run of the stage will begin from any more."""
    waited_for = {donor.digest for heir, (donor, _) in donors(request.kin).items() if store.read_result(heir) is None}
    for run in request.kin:
        if run.digest not in waited_for:
            store.shared_path(run.digest).unlink(missing_ok=True)
