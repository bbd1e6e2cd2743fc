"""Commands that mostly find all measured, or all done, begin without torch: its import is half of what they take."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

AGAIN = "ABLATE_WITH_TORCH"
"""Environment variable of a command that began again."""


@contextmanager
def without_torch(options: argparse.Namespace, *, likely: bool) -> Iterator[None]:
    """Do without torch, where that is likely to do, in a process that is the command's own and on a machine without a
    GPU. Where torch turns out to be needed, the command begins again with it: nothing that it has written is lost."""
    from zoo.settings.without_torch import TorchNeededError, may_have_gpu, pretend

    again = os.environ.pop(AGAIN, None) is not None
    if options.own_process and likely and not again and not may_have_gpu():
        pretend()
    try:
        yield
    except Exception as error:
        if not any(isinstance(each, TorchNeededError) for each in _causes(error)):
            raise
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, AGAIN: "1"})


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it was raised from: libraries wrap what goes wrong as they are imported."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def is_planned(options: argparse.Namespace) -> bool:
    """Whether the same study was planned here within an hour, so that the times of its steps are known."""
    from ablate.machine.recent import read

    return _plan_of(options) in read()


def keep_planned(options: argparse.Namespace, seconds: float) -> None:
    """Keep what it took to plan a study, for `is_planned`."""
    from ablate.machine.recent import keep

    keep(_plan_of(options), seconds)


def _plan_of(options: argparse.Namespace) -> str:
    file = Path(options.study)
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    asked = json.dumps([options.study, text, options.scale, options.sets])
    return f"seconds of the plan of {hashlib.sha256(asked.encode()).hexdigest()[:16]}"


def is_reported(options: argparse.Namespace) -> bool:
    """Whether the store has the report of a study, so that there may be nothing to run."""
    from ablate.api.named import study_name
    from ablate.store import Store

    return Store(options.store).study(study_name(options.study), options.scale or "cpu").report_path.exists()
