"""A run's training in this process, as its request asks for it."""

from __future__ import annotations

from collections.abc import Callable

from ablate.machine.numerics import Numerics, enforce
from ablate.running.request import Request
from ablate.store import AblateError, Store
from ablate.training.process_group import ProcessGroup
from ablate.training.reader import TrainingData
from ablate.training.session import Session


class NumericsError(AblateError):
    """This machine does not compute as the run's identity says."""


def numerics_of(request: Request) -> Numerics:
    """Put the numerics of the run's identity in force, or refuse."""
    wanted = request.identity.numerics
    found = enforce(wanted.device, wanted.dtype, request.threads)
    if not found.meets(wanted):
        asked, given = wanted.model_dump(), found.identity().model_dump()
        raise NumericsError(f"the run requires {asked}, but this machine has {given}")
    return found


def session_of(
    request: Request,
    corpus: TrainingData,
    numerics: Numerics,
    group: ProcessGroup,
    stop: Callable[[], bool] = lambda: False,
) -> Session:
    """The session of one process of the group."""
    store = Store(request.store)
    return Session(store, request.identity, corpus, numerics, request.execution, group=group, stop=stop)
