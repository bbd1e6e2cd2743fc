"""Figures of this machine that were measured within the last hour: a command that needs no others needs no torch.

They are in `~/.cache/ablate/machine` (`$XDG_CACHE_HOME`, `$ABLATE_MACHINE_DIR`), in a file for each combination of
processor, torch version and settings of matmul libraries. A file that is damaged or of another machine is ignored, and
removing one is always safe.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

from ablate.machine.environment import cpu_instructions, cpu_name, user_cache
from store.files import write_text

HOUR = 3600.0
"""Seconds after which a figure is measured again."""
BUSY = 1.5
"""Times as long from which a machine is called busy. A figure that was taken on one so much busier than now is measured
again."""
FOLDER = "ABLATE_MACHINE_DIR"
LIBRARIES = ("ATEN_", "DNNL_", "KMP_", "MKL_", "OMP_", "ONEDNN_", "OPENBLAS_")
"""Prefixes of the environment variables that choose kernels and their threads."""
Figure: TypeAlias = tuple[float, float, float]
"""A value, the time at which it was taken (seconds since 1970), and the slowdown then."""
used: dict[str, float] = {}
"""Slowdowns under which the figures that this process used were taken, by name."""


def recently(name: str, measure: Callable[[], float], *, slows: bool = True) -> float:
    """A figure measured within the last hour; if there is none, `measure` it now and keep it. slows: whether it depends
    on what else the machine does."""
    found = _taken().get(name)
    if found is None:
        found = measure(), time.time(), slowdown() if slows else 1.0
        figures = {**_taken(), name: found}  # one of several concurrent commands may lose its figure and measure again
        with suppress(OSError):  # a home that is read-only or full: the next command measures again
            path().parent.mkdir(parents=True, exist_ok=True)
            # As ASCII: the machine's variables may hold bytes that are no text.
            write_text(path(), json.dumps({"machine": machine(), "figures": figures}, indent=1) + "\n")
    value, _, used[name] = found
    return value


def slowdown(at_once: int = 1) -> float:
    """Factor by which `at_once` more processes are slower than on an idle machine, by the load of the last minute."""
    cores = len(os.sched_getaffinity(0))
    return max(1.0, (os.getloadavg()[0] + min(at_once, cores)) / cores)


def slowdown_of_figures() -> float:
    """The largest slowdown under which a figure was measured that this process used; 1 if there is none."""
    return max(used.values(), default=1.0)


def read() -> dict[str, float]:
    """The figures that are still valid, by name."""
    return {name: value for name, (value, *_) in _taken().items()}


def _taken() -> dict[str, Figure]:
    """The figures that are still valid, by name."""
    try:
        document = json.loads(path().read_text(encoding="utf-8"))
        figures = document["figures"].items() if document["machine"] == machine() else ()
        return {
            name: (value, taken, slower) for name, (value, taken, slower) in figures if _holds(value, taken, slower)
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):  # missing, or not of this form
        return {}


def path() -> Path:
    """The file of this machine's figures."""
    folder = Path(os.environ.get(FOLDER, ""))
    name = hashlib.sha256(json.dumps(machine()).encode()).hexdigest()[:16]
    return (folder if folder.is_absolute() else user_cache("machine")) / f"{name}.json"


def machine() -> dict[str, str]:
    """Properties of the machine that a figure depends on, beside those in its name."""
    chosen = {name: value for name, value in sorted(os.environ.items()) if name.startswith(LIBRARIES)}
    processor = {"processor": cpu_name(), "instructions": cpu_instructions()}
    return {**processor, "torch": _version(), **chosen}


@cache
def _version() -> str:
    return metadata.version("torch")


def _holds(value: Any, taken: Any, slower: Any) -> bool:
    are_numbers = all(type(each) is float and math.isfinite(each) for each in (value, taken, slower))
    return are_numbers and value >= 0 and 0 <= time.time() - taken < HOUR and slower < BUSY * slowdown()
