"""The log of a run: written by its workers, printed by `ablate logs`."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from pathlib import Path

import pytest

import ablate
from ablate.cli import main
from ablate.running.request import Request
from ablate.running.worker import logged, work
from store import Store, StoreError
from tests.ablate.conftest import identity_of


def test_a_run_in_process_says_what_it_did_and_when(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digest = Store(trained).runs()[0]
    assert main(["logs", digest[:6], "--store", str(trained), "--follow"]) == 0  # it is done: nothing to wait for
    lines = capsys.readouterr().out.splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", line) for line in lines)
    said = [line[20:] for line in lines]
    assert said[0].endswith(": train")
    assert said[1] == "train"
    steps = [int(match[1]) for line in said if (match := re.match(r"step (\d+)/20: validation loss", line))]
    assert steps == [0, 4, 8, 12, 16, 20]
    assert said[-1] == "done"
    assert list(ablate.logs(trained / digest)) == lines


def test_what_a_process_prints_and_why_it_failed_are_in_the_log(tmp_path: Path) -> None:
    identity = identity_of()
    request = Request(store=str(tmp_path / "runs"), corpus=str(tmp_path / "none"), identity=identity)
    (tmp_path / "request.json").write_text(request.to_json())
    assert _work_alone(tmp_path) == 1
    log = Store(tmp_path / "runs").log_path(identity.digest).read_text()
    assert "Traceback" in log
    assert "DataError" in log.splitlines()[-1]


def _work_alone(folder: Path) -> int:
    """Run the worker in a fork of this process, whose standard output becomes the log."""
    child = os.fork()
    if child == 0:
        os._exit(work([str(folder / "request.json")]))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_following_shows_what_is_appended_until_the_run_is_done(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = store.log_path("0123")
    path.parent.mkdir()
    path.write_text("1 begun\n2 half a li")
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.extend(ablate.logs("01", store=tmp_path, follow=True)))
    reader.start()
    time.sleep(0.1)
    with path.open("a") as log:
        log.write("ne\n3 done\n")
    reader.join(timeout=10)
    assert found == ["1 begun", "2 half a line", "3 done"]


def test_a_run_that_nobody_began_has_no_log(trained: Path) -> None:
    with pytest.raises(StoreError, match="nothing: there is no such run"):
        ablate.logs("nothing", store=trained)


def test_what_others_log_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "0123").mkdir()
    with logged(Store(tmp_path), "0123"):
        logging.getLogger("ablate.here").info("ours")
        logging.getLogger("elsewhere").info("theirs")
    logging.getLogger("ablate.here").info("too late")
    assert Store(tmp_path).log_path("0123").read_text()[20:] == "ours\n"
