"""Code beside task files that was allowed as a source is not taken from what somebody compiled in its place."""

from __future__ import annotations

import importlib.util
import os
import py_compile
from pathlib import Path

from evals.harness.evaluate import sources_alone


def answer(source: Path) -> object:
    spec = importlib.util.spec_from_file_location("beside_a_task", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ANSWER


def test_what_is_compiled_beside_a_task_is_not_run(tmp_path: Path) -> None:
    source, forged = tmp_path / "utils.py", tmp_path / "forged.py"
    source.write_text("ANSWER = 1\n")
    forged.write_text("ANSWER = 2\n")
    then = source.stat().st_mtime
    os.utime(forged, (then, then))  # a compiled file knows its source by time and size
    place = importlib.util.cache_from_source(str(source))
    py_compile.compile(str(forged), cfile=place, dfile=str(source))
    assert answer(source) == 2, "the attack works"
    with sources_alone():
        assert answer(source) == 1
    assert answer(source) == 2, "other imports are as they were"
