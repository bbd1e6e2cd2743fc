"""Start commands without torch if everything is probably measured or done: its import takes half of their time."""

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
"""Environment variable that marks a restarted command."""


@contextmanager
def without_torch(options: argparse.Namespace, *, likely: bool) -> Iterator[None]:
    """Run the block without torch if that is `likely` to suffice, the process runs nothing else and the machine has no
    GPU. If torch is needed after all, the command restarts with it: nothing that it has written is lost."""
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
    """An error and its chain of causes: libraries wrap errors that occur during their import."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def is_planned(options: argparse.Namespace) -> bool:
    """Whether the same study was planned on this machine within an hour, so that its step times are known."""
    from ablate.machine.recent import read

    return _plan_of(options) in read()


def keep_planned(options: argparse.Namespace, seconds: float) -> None:
    """Record the time that planning a study took, for `is_planned`."""
    from ablate.machine.recent import keep

    keep(_plan_of(options), seconds)


def _plan_of(options: argparse.Namespace) -> str:
    file = Path(options.study)
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    asked = json.dumps([options.study, text, options.scale, options.sets])
    return f"seconds of the plan of {hashlib.sha256(asked.encode()).hexdigest()[:16]}"


def is_reported(options: argparse.Namespace) -> bool:
    """Whether the store has a study's report, so that there may be nothing to run."""
    from ablate.api.named import study_name
    from store import Store

    return Store(options.store).study(study_name(options.study), options.scale or "cpu").report_path.exists()
