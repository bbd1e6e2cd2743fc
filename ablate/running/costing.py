"""Measure the speeds of a study's arms against each other, once none of its runs is in progress.

Speed needs no trained weights and is the same for every seed. Arms with the same computation, such as those that differ
only in learning rate, share one measurement, and so have the same speed.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from functools import cached_property

from ablate.planning.plan import ArmPlan, Plan, Workload
from ablate.readable import now
from ablate.running.engines import Engine
from ablate.running.rehearsal import ENDLESS, Rehearsal, Rehearsed
from ablate.training.execution import Execution
from evals.costs.alternation import Effort, Pace
from evals.costs.spec import DRAWN, JUDGED, PROCESSES
from store import Store, StudyFolder
from store.documents import CostsDocument, JsonObject
from zoo.settings.identity import digest_of, identity_of

ROUNDS = 8
"""Minimum number of rounds in each process, for the points by which arms are judged."""
NAME = "costs"
"""Placeholder digest of runs that are not stored."""


@dataclass(frozen=True)
class Costing:
    """Speed measurement of a plan's arms on an engine's machine."""

    plan: Plan
    store: Store
    engine: Engine
    execution: Execution

    @cached_property
    def digest(self) -> str | None:
        """Name of the measurement; None if there is none to make: not timed, or runs on several devices."""
        measure = self.plan.measure
        if measure is None or not self.plan.is_timed or self.execution.devices > 1:
            return None
        arms: dict[str, JsonObject] = {}  # everything that determines each arm's speed
        for arm in self.plan.arms:
            run = arm.runs[0].identity
            teacher = {"teacher": identity_of(run.teacher)} if run.teacher else {}
            arms[arm.name] = {**Workload(arm.spec, arm.train, run.numerics).identity, **teacher}
        request = {
            "arms": arms,
            "measure": {name: each for name, each in identity_of(measure).items() if name != "caches"},
            "execution": self.execution.model_dump(include={"microbatch", "recompute"}),
            "device": self.engine.where,
        }
        return digest_of(request)

    def measure(self, folder: StudyFolder) -> None:
        """Measure, and store the document. Raises CalibrationError."""
        spec = self.plan.measure
        if self.digest is None or spec is None:
            raise ValueError("the study measures nothing")
        judged = Pace(seconds=JUDGED * spec.seconds / PROCESSES, rounds=ROUNDS)
        request = Rehearsal(
            arms=tuple(self._rehearsed(arm) for arm in self.plan.arms),
            measure=spec.model_dump(mode="json"),
            effort=Effort(judged=judged, drawn=Pace(seconds=DRAWN * spec.seconds / PROCESSES, rounds=1)),
            store=str(self.store.absolute.root),
            execution=self.execution,
            order=secrets.randbits(32),
        )
        began = time.monotonic()
        found = self.engine.rehearse(request, alone=True)
        folder.write_costs(
            CostsDocument(
                request=self.digest,
                processes=found.processes,
                environment=found.environment,
                seconds=time.monotonic() - began,
                measured=now(),
            )
        )

    def _rehearsed(self, arm: ArmPlan) -> Rehearsed:
        own = {"digest": NAME, "steps": ENDLESS, "start": None, "probes": None}
        identity = arm.runs[0].identity.model_copy(update=own)
        corpus = self.store.absolute.data(identity.data.digest).path
        return Rehearsed(name=arm.name, identity=identity, corpus=str(corpus))
