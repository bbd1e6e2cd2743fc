"""The phases of one run in a worker: train, measure, evaluate. Each phase ends with its document in the store.

The libraries of all phases are loaded at once, also when only one is asked for: a process's memory counts them, and a
run that is not evaluated must be comparable with one that is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ablate.machine.numerics import enforce_as
from ablate.running.phases.evaluating import evaluate
from ablate.running.phases.measuring import measure
from ablate.running.phases.training import train
from ablate.running.request import Request
from ablate.store.claims import FolderClaim
from ablate.store.documents.claim import Count
from ablate.training.stop import Interrupted, StopSignal
from evals.costs.memory import forget, take_share
from evals.counting import listening
from evals.evaluations import load_imports
from zoo.errors import PluginError
from zoo.settings.registry import changed

LOG = logging.getLogger(__name__)


def run_phases(request: Request, stop: StopSignal, claim: FolderClaim) -> None:
    """Do all that is missing, in order; the claim on the run tells how far that is.

    Raises Interrupted when training was asked to stop, and PluginError where a plug-in is not what the run was planned
    with.
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
            if stop.asked:  # in the last steps of training, or while its results were written
                raise Interrupted(f"run {request.digest} stopped before {missing[0]}")
            LOG.info("%s", missing[0])
            tell(None)
            forget(numerics.device)  # what the phase before left is not this one's memory
            phases[missing[0]]()
