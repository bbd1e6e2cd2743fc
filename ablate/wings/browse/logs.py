"""`ablate.logs`: the log of a run's workers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from ablate.running.runlog import DONE
from ablate.wings.named.runs import named_run
from store import Store
from store.files import check_regular

LOOK_SECONDS = 0.2


def logs(run: str | Path, *, store: str | Path = "runs", follow: bool = False) -> Iterator[str]:
    """Read the log of a run, whatever the engine: what was done, when and where, with warnings and tracebacks.

    Args:
        run: the digest of a run in the store, or the beginning of one, or its place in a study (`my_study/swiglu`, for
            the first seed; `my_study/swiglu/2`), or its folder.
        store: the store's folder; not needed if `run` is a folder.
        follow: keep yielding new lines until the run is done.

    Returns:
        The log's lines, without line ends.

    Raises:
        StoreError: there is no such run, or no worker has started on it.

    Example:
        >>> print(*ablate.logs("3f2a"), sep="\\n")
    """
    place, digest = named_run(run, store, Store.logged)
    return _lines(place.log_path(digest), follow)


def _lines(path: Path, follow: bool) -> Iterator[str]:
    rest, over = "", False
    check_regular(path)
    with path.open(encoding="utf-8", errors="replace") as log:
        while True:
            *lines, rest = (rest + log.read()).split("\n")
            yield from lines
            over = lines[-1].endswith(f" {DONE}") if lines else over
            if over or not follow:
                break
            time.sleep(LOOK_SECONDS)
    if rest:
        yield rest
