"""Phases of one run in a worker: train, measure, evaluate. Each phase ends by writing its document to the store.

The libraries of all phases are always loaded, even for a single phase: they count in a process's memory, and runs with
and without evaluation must be comparable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ablate.machine.numerics import enforce_as
from ablate.running.phases.evaluating import evaluate
from ablate.running.phases.measuring import measure
from ablate.running.phases.training import train
from ablate.running.request import Request
from ablate.training.stop import Interrupted, StopSignal
from evals.costs.memory import forget, take_share
from evals.counting import listening
from evals.evaluations import load_imports
from store.claims import FolderClaim
from store.documents.claim import Count
from zoo.errors import PluginError
from zoo.settings.registry import changed

LOG = logging.getLogger(__name__)


def run_phases(request: Request, stop: StopSignal, claim: FolderClaim) -> None:
    """Execute the missing phases in order; the claim on the run reports progress.

    Raises Interrupted if the worker was asked to stop, and PluginError if a plug-in has changed since the run was
    planned, or is missing.
    """
    load_imports()
    if stale := ", ".join(changed(request.identity.plugins or {})):
        raise PluginError(f"plug-ins changed since the run was planned, or are not on this machine: {stale}")
    numerics = enforce_as(request.identity.numerics, request.threads)
    if numerics.device == "cuda":
        take_share(request.beside + 1)
    phases: dict[str, Callable[[], None]] = {
        "train": lambda: train(request, numerics, stop),
        "measure": lambda: measure(request, numerics),
        "evals": lambda: evaluate(request, numerics),
    }

    def tell(count: Count | None) -> None:
        claim.count = count

    with listening(tell):
        while missing := request.missing():
            if stop.asked:  # during the last steps of training, or while results were written
                raise Interrupted(f"run {request.digest} stopped before {missing[0]}")
            LOG.info("%s", missing[0])
            tell(None)
            if missing[0] != "train":
                forget(numerics.device)  # memory left by training must not count as the trained model's
            phases[missing[0]]()
