"""Settings of executing a run on its machine, which are not part of the run's identity."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from store.claims import STALL_SECONDS
from store.documents import Part


def is_count(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 1


def _count(given: object) -> object:
    if not is_count(given):
        raise ValueError("expected a whole number from 1")
    return given


def _rows(given: object) -> object:
    if given != "auto" and not is_count(given):
        raise ValueError("expected a number of rows, or auto")
    return given


Count = Annotated[int, BeforeValidator(_count)]
Microbatch = Annotated[int | Literal["auto"], BeforeValidator(_rows)]


class Execution(Part):
    """Settings of a worker. Runs that differ only in these share a digest: their results agree to within rounding.

    The exception is randomness inside a model (dropout, stochastic depth, the first state of a loop), which is drawn
    anew for every part of a batch.

    The docstrings of the fields are shown to users: see `ablate.running.options`.
    """

    checkpoint_seconds: Annotated[float, Field(ge=0)] = 60.0
    """Seconds between the checkpoints that a run saves to resume from."""
    stall_timeout: Annotated[float, Field(gt=0)] = STALL_SECONDS
    """Seconds without a heartbeat after which a process counts as gone and another takes over its run. A process that
    died on this machine is noticed at once."""
    microbatch: Microbatch | None = None
    """Rows of a batch per pass, accumulating gradients, for models that would not fit in memory otherwise; auto halves
    the number until they fit. Losses agree with those of whole batches to within rounding."""
    recompute: bool = False
    """Keep only each block's input, and recompute its activations in the backward pass: less memory, about a third more
    time."""
    devices: Count = 1
    """Split the batches of each run across this many devices of one machine (data parallel): losses agree with those of
    one device to within rounding."""
    shard: bool = False
    """Also shard weights, gradients and the optimizer's state across the devices of a run (FSDP2)."""
    profile: bool = False
    """Write a Chrome trace of steps 10 to 14 of each run to its folder, as trace.json.gz. These steps are slower."""


DEFAULT = Execution()
