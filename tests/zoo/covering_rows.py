"""The covering array of the conformance suite, worked out by one process of a test run and read by the others."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from functools import cache
from pathlib import Path

from filelock import FileLock

from zoo.conformance.combinations import Row, choices, covering, opening


@cache
def rows_and_opening() -> tuple[list[Row], int]:
    """`covering()` and `opening()`, which take every process of a parallel test run as long as a hundred tests."""
    test_run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if test_run is None:
        return covering(), opening()
    shared = Path(tempfile.gettempdir()) / f"covering-{test_run}.json"
    with FileLock(f"{shared}.lock"):
        if not shared.exists():
            found = {"rows": [[str(option) for option in row.values()] for row in covering()], "opening": opening()}
            shared.write_text(json.dumps(found), encoding="utf-8")
    known = json.loads(shared.read_text(encoding="utf-8"))
    options = {str(option): option for option in itertools.chain(*choices().values())}
    rows = [{options[name].axis: options[name] for name in row} for row in known["rows"]]
    return rows, known["opening"]
