"""Request to a worker: one JSON document, so that a worker can run on any machine that has access to the store."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.training.execution import DEFAULT, Execution
from store import Store, processes
from store.claims import Watch, claimed, last_beat
from store.documents import JsonObject, Part, RunDocument
from store.store import Status

if TYPE_CHECKING:
    from ablate.planning.plan import Plan


class Request(Part):
    """Request to carry out one run until its result, measurement and evaluation are in the store.

    `measure` and `evals` are specs, with the digests that name their documents; None skips the phase.
    """

    store: str
    corpus: str
    identity: RunDocument
    measure: JsonObject | None = None
    measure_digest: str | None = None
    evals: JsonObject | None = None
    evals_digest: str | None = None
    execution: Execution = DEFAULT
    threads: int = 1
    beside: int = 0
    """Number of other runs that may share the GPU at the same time."""
    kin: tuple[RunDocument, ...] = ()
    """This run and others of its stage that begin with the same steps, in the order of the plan."""

    @classmethod
    def of(cls, plan: Plan, identity: RunDocument, store: Store, execution: Execution, beside: int = 0) -> Request:
        """The request for one run of a plan."""
        measure = plan.measure if plan.measures(identity.digest) else None
        return cls(
            store=str(store.absolute.root),
            corpus=str(store.absolute.data(identity.data.digest).path),
            identity=identity,
            measure=measure.model_dump(mode="json") if measure else None,
            measure_digest=plan.measure_digest if measure else None,
            evals=plan.evals.model_dump(mode="json") if plan.evals else None,
            evals_digest=plan.evals_digest,
            execution=execution,
            beside=beside,
        )

    @property
    def digest(self) -> str:
        return self.identity.digest

    def missing(self) -> list[str]:
        """Phases still to do, among "train", "measure" and "evals", in that order. A diverged run is neither measured
        nor evaluated."""
        store = Store(self.store)
        return phases_after(store.status(self.digest), store, self.digest, self.measure_digest, self.evals_digest)

    def to_json(self) -> str:
        return self.model_dump_json(by_alias=True)

    @classmethod
    def read(cls, path: Path) -> Request:
        return cls.model_validate_json(path.read_bytes())


def phases_after(status: Status, store: Store, digest: str, measure: str | None, evals: str | None) -> list[str]:
    """Phases still to do of a run with a known status. measure, evals: digests of the requests; None skips the phase.
    The status "diverged" leaves none."""
    if status == "diverged":
        return []
    phases = [] if status == "finished" else ["train"]
    if measure and store.read_measure(digest, measure) is None:
        phases.append("measure")
    if evals and store.read_evals(digest, evals) is None:
        phases.append("evals")
    return phases


# Temporary folders that no killed process leaves behind: for requests and logs of workers, and for archives.

PREFIX = "ablate-"
DAY_SECONDS = 86_400.0
"""Silence after which a folder on a file system that other machines may share counts as left."""


@contextmanager
def scratch(prefix: str = PREFIX, beside: Path | None = None) -> Iterator[Path]:
    """A temporary folder, removed at the end. Removes folders left by killed processes of this machine first.

    beside: the folder for it; None for that of temporary files, which is this machine's own.
    """
    place = Path(tempfile.gettempdir()) if beside is None else beside
    for folder in left_behind(place, prefix, is_shared=beside is not None):
        shutil.rmtree(folder, ignore_errors=True)  # another command may be sweeping too
    with tempfile.TemporaryDirectory(prefix=prefix, dir=place) as name, claimed(Path(name)):
        yield Path(name)


def left_behind(place: Path, prefix: str, is_shared: bool) -> Iterator[Path]:
    """Temporary folders whose process has ended. is_shared: other machines may have made them."""
    for folder in place.glob(f"{prefix}*"):
        with suppress(OSError):  # somebody else's, or no folder
            holder = Watch(folder).holder()
            if holder is None:
                continue
            # On this machine alone, an owner from another boot can only be from an earlier one.
            silent = not is_shared or time.time() - last_beat(folder) > DAY_SECONDS
            earlier = silent and (is_shared or processes.is_of_another_start(holder.host))
            if earlier or processes.has_ended(holder.host, holder.pid, holder.started):
                yield folder
