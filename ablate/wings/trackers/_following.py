"""Following of runs for trackers: the process that follows the study copies from the store, which remains the source of
truth, to the trackers, whatever the engine, so no worker waits for one. A tracker that fails is left out from then on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ablate.tracking import RunTracker, TrackedRun
from store import Store
from store.documents import RunDocument
from store.errors import ArgumentError
from store.extensions import added_to
from zoo.errors import did_you_mean
from zoo.settings.registry import member, members

PLACE = "ablate.tracking"
"""Where trackers are added."""
POLL_SECONDS = 2.0
"""Time between two reads of the metrics of a run in progress."""
MEASURED = ("loss", "bits_per_byte", "accuracy", "train_seconds", "peak_memory_bytes", "parameters", "flops", "mfu")
"""Fields of a result that are logged as one number each."""


def names() -> list[str]:
    return members(PLACE, *added_to(PLACE))


def check(wanted: Sequence[str]) -> None:
    """Raise ArgumentError for an unknown tracker."""
    for name in wanted:
        if name not in names():
            hint = did_you_mean(name, names()) or f": one of {', '.join(names())}"
            raise ArgumentError("tracker", f"there is no such tracker{hint}", name)


@dataclass
class _Followed:
    """A run, its open trackers by name, and the number of rows of its metrics that were sent to them."""

    digest: str
    sinks: dict[str, RunTracker] = field(default_factory=dict)
    sent: int = 0
    looked: float = 0.0


@dataclass
class Trackers:
    """The trackers of a study. `say` reports a tracker that fails, which is then left out."""

    store: Store
    wanted: list[str]
    say: Callable[[str], None]
    followed: dict[str, _Followed] = field(default_factory=dict)

    def begin(self, study: str, scale: str, arm: str, identity: RunDocument) -> None:
        """Open a started run in every tracker."""
        config = identity.model_dump(mode="json")
        folder, digest = self.store.root / "trackers", identity.digest
        self.followed[digest] = _Followed(digest)
        for name in list(self.wanted):
            own = TrackedRun(study, scale, arm, identity.seed, digest, config, folder / name)
            self._guarded(name, lambda name=name, own=own: self._open(digest, name, own))  # type: ignore[misc]

    def _open(self, digest: str, name: str, run: TrackedRun) -> None:
        run.folder.mkdir(parents=True, exist_ok=True)
        self.followed[digest].sinks[name] = member(PLACE, name, *added_to(PLACE)).begin(run)

    def look(self) -> None:
        """Send new metrics of the runs in progress, at most once in `POLL_SECONDS` for each."""
        for each in self.followed.values():
            if time.monotonic() - each.looked >= POLL_SECONDS:
                self._send(each)

    def end(self, digest: str) -> None:
        """Send the last metrics and the result of an ended run, and close it in every tracker."""
        each = self.followed.pop(digest, None)
        if each is None:
            return
        self._send(each)
        result = self.store.read_result(digest)
        found = {} if result is None else result.model_dump()
        numbers = {name: float(found[name]) for name in MEASURED if found.get(name) is not None}
        if result is not None:
            numbers["tokens_per_second"] = result.training_speed or 0.0
        for name, sink in each.sinks.items():
            self._guarded(name, lambda sink=sink: sink.finish(numbers, result.status if result else "failed"))  # type: ignore[misc]

    def close(self) -> None:
        """End all runs: the study has ended, or was stopped."""
        for digest in list(self.followed):
            self.end(digest)

    def _send(self, each: _Followed) -> None:
        each.looked = time.monotonic()
        rows = self.store.read_metrics(each.digest)
        each.sent = min(each.sent, len(rows))  # a resumed run truncates its log
        for row in rows[each.sent :].iter_rows(named=True):
            step = int(row.pop("step"))
            values = {key: value for key, value in row.items() if value is not None and math.isfinite(value)}
            for name, sink in list(each.sinks.items()):
                self._guarded(name, lambda sink=sink, step=step, values=values: sink.log(step, values))  # type: ignore[misc]
        each.sent = len(rows)

    def _guarded(self, name: str, call: Callable[[], None]) -> None:
        """Call a tracker; if it raises anything, go on without it."""
        if name not in self.wanted:
            return
        try:
            call()
        except Exception as error:  # libraries and networks may raise anything
            self.wanted.remove(name)
            remedy = ""
            if isinstance(error, ModuleNotFoundError):
                remedy = f": {getattr(member(PLACE, name, *added_to(PLACE)), 'REMEDY', 'install it')}"
            self.say(f"tracker {name} failed and is no longer used: {type(error).__name__}: {error}{remedy}")
