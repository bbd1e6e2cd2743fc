"""Answers that are given again as long as nothing has changed that they depend on.

A plan, the table of a finished study and a rendered report follow from files alone. An answer is kept in the user's
cache folder with the stamps of these files (`ablate.machine.dependencies`), and whoever asks again waits for no torch,
no planning and no statistics. What is kept is never the truth: it may be removed at any time, and after any change of a
file, or of one bit of what is kept, the answer is computed anew.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ablate.machine.dependencies import installed, stamp, watched
from ablate.machine.environment import cores
from ablate.store import checksum, write_text

Answer = dict[str, Any]
"""What a command prints, as JSON."""
Stamps = Mapping[str, str]
FOLDER = "ABLATE_ANSWERS"
MOST_KEPT = 64
"""Answers; the oldest go first."""
VARIABLES = ("ABLATE_", "CUDA_", "HF_", "MKL_", "OMP_", "RAY_", "SLURM_", "TORCH", "XDG_")
"""How the names of environment variables begin that answers may depend on."""


def remembered(
    options: argparse.Namespace, answer: Callable[[], Answer], lasts: Callable[[Answer, Stamps], bool]
) -> Answer:
    """The answer of a command, computed unless it is kept and nothing has changed since.

    lasts: whether the command would give the same answer again, as long as the files keep their stamps.
    """
    path = folder() / f"{_digest(options)}.json"
    kept = _kept(path)
    if kept is not None:
        print("ablate: nothing has changed since this was last asked", file=sys.stderr)
        return kept
    with watched() as dependencies, _warnings() as warned:
        found = answer()
    stamps = None if warned else dependencies.stamps()
    if stamps is not None and lasts(found, stamps):
        with suppress(OSError):  # a cache that cannot be written costs time, and nothing else
            _keep(path, found, stamps)
    return found


def folder() -> Path:
    """$ABLATE_ANSWERS; without it $XDG_CACHE_HOME/ablate/answers, and ~/.cache/ablate/answers without that."""
    if own := os.environ.get(FOLDER):
        return Path(own)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "ablate" / "answers"


def _digest(options: argparse.Namespace) -> str:
    """Of all but files that an answer may depend on: the options, the machine, and what is installed."""
    question = {name: str(value) for name, value in vars(options).items() if name != "command"}
    variables = {name: value for name, value in os.environ.items() if name.startswith(VARIABLES)}
    gpus = sorted(path.name for path in Path("/dev").glob("nvidia*"))
    here = [platform.node(), cores(), gpus, str(Path.cwd()), variables, installed()]
    return hashlib.sha256(json.dumps([options.command.__name__, question, here]).encode()).hexdigest()[:32]


def _kept(path: Path) -> Answer | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    body, is_whole = checksum.unsealed_json(content)
    if not is_whole or len(body) == len(content):  # damaged, or without the seal at its end
        return None
    kept = json.loads(body)
    unchanged = all(stamp(name) == before for name, before in kept["files"].items())
    return kept["answer"] if unchanged else None


def _keep(path: Path, answer: Answer, stamps: Stamps) -> None:
    write_text(path, checksum.sealed_json(json.dumps({"answer": answer, "files": stamps}, indent=1) + "\n"))
    newest = sorted(path.parent.glob("*.json"), key=os.path.getmtime, reverse=True)
    for old in newest[MOST_KEPT:]:
        old.unlink(missing_ok=True)


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """The warnings that are shown in the block: an answer that is kept would come without them."""
    shown: list[str] = []
    show = warnings.showwarning

    def noting(message: Warning | str, *rest: Any, **more: Any) -> None:
        shown.append(str(message))
        show(message, *rest, **more)

    warnings.showwarning = noting
    try:
        yield shown
    finally:
        warnings.showwarning = show
