"""The environment of a run: versions, source, machine."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from store.errors import AblateError

if TYPE_CHECKING:
    from store.documents import Environment

SINGLE_THREADED = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
"""Environment variables for a process that shares the processor with others."""
PROJECT = Path(__file__).resolve().parent.parent.parent


def describe(device: str, threads: int) -> Environment:
    """The environment in which a document is made."""
    import torch  # noqa: PLC0415 (commands without torch use most of this module)

    from store.documents import Environment  # noqa: PLC0415 (as above)

    git = git_state(PROJECT)
    return Environment(
        python=platform.python_version(),
        torch=str(torch.__version__),
        ablate=project_version(),
        git_commit=git.commit,
        git_dirty=git.dirty,
        device=device_name(device),
        threads=threads,
        platform=platform.platform(),
    )


def device_name(device: str) -> str:
    """Name of this machine's GPU or processor."""
    import torch  # noqa: PLC0415 (as above)

    return torch.cuda.get_device_name() if device == "cuda" else cpu_name()


def worker_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours. -P keeps files in the current folder, such as `datasets/` or `random.py`
    beside a study, from shadowing packages."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment_of_worker(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a process that imports our packages, installed or not."""
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(PROJECT), *([inherited] if inherited else [])])
    return {**os.environ, **variables, "PYTHONPATH": path}


def project_version() -> str:
    """The version of the checkout that this file is in, or else of the installed package."""
    declared = PROJECT / "pyproject.toml"
    if declared.exists():
        version: str = tomllib.loads(declared.read_text(encoding="utf-8"))["project"]["version"]
        return version
    return metadata.version("ablate-lm")


class GitState(NamedTuple):
    """Commit of a checkout, and whether it has uncommitted changes; None if unknown."""

    commit: str | None
    dirty: bool | None


def git_state(checkout: Path) -> GitState:
    """Commit and cleanliness of the checkout at `checkout`. Untracked files count as changes: a new file may be a new
    variant.
    """
    if not (checkout / ".git").exists():
        return GitState(None, None)
    commit, changes = _git(checkout, "rev-parse", "HEAD"), _git(checkout, "status", "--porcelain")
    return GitState(commit.strip() if commit else None, None if changes is None else bool(changes.strip()))


def _git(checkout: Path, *arguments: str) -> str | None:
    """The output of git; None if it is not installed or fails."""
    try:
        done = subprocess.run(["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def user_folder(variable: str, usual: str, name: str) -> Path:
    """`ablate/<name>` in the folder of an environment variable, or in `usual` of the home folder if the variable is
    unset or, by the specification of `$XDG_CACHE_HOME` and its kin, relative. Raises AblateError without either."""
    named = Path(os.environ.get(variable, ""))
    try:
        return (named if named.is_absolute() else Path.home() / usual) / "ablate" / name
    except RuntimeError as error:
        raise AblateError(f"{variable}: set it to a folder, since this user has no home folder") from error


def user_cache(name: str) -> Path:
    """A folder for data that can be recreated."""
    return user_folder("XDG_CACHE_HOME", ".cache", name)


def cpu_name() -> str:
    """The processor's name as Linux reports it, or else its architecture."""
    return _cpu_fact("model name") or platform.machine()


def cpu_instructions() -> str:
    """Names of the processor's instruction sets as Linux reports them, or else nothing."""
    return _cpu_fact("flags")


@cache
def _cpu_fact(name: str) -> str:
    """A field of the first processor in /proc/cpuinfo; empty if it is missing."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def cores(cpu_max: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Processor cores that this process may use: its affinity, or its container's quota if that is less.

    cpu_max: a cgroup's `quota period` in microseconds. The quota is rounded down, but to no less than one core.
    """
    allowed = (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()) or 1
    quota, period = cpu_max.read_text(encoding="utf-8").split() if cpu_max.exists() else ("max", "")
    return allowed if quota == "max" else max(1, min(allowed, int(quota) // int(period)))


def own_threads() -> int:
    """Threads of a command that computes in its own process: `OMP_NUM_THREADS`, or else one for each core."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, int(asked)) if re.fullmatch(r"[0-9]{1,4}", asked) else cores()
