"""Odd command lines: status 0, 1 or 2, one line of why, no traceback, and nothing written where it is 2."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import re
import shutil
import unicodedata
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ablate import cli
from ablate.commands import COMMANDS

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch's own, when it loads inductor

QUIET = list(HealthCheck)
QUICK = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=QUIET)
LONG = settings(max_examples=2000, deadline=None, suppress_health_check=QUIET)
BUSY = ("run", "search", "serve", "bench")
"""Commands that train, measure or wait, whatever they are given: they get odd studies and values alone."""

NAMES = [
    "",
    "-",
    "--",
    "~",
    "..",
    "/",
    "/dev/null",
    "no_such",
    "é\u202e",
    "\x1b[2J\r\x9bm",
    "x" * 3000,
    "a b",
    "*",
    "[",
    "%s",
    "{}",
]
NUMBERS = ["-1", "0", "1e999", "nan", "99999999999999999999", "0x10", "1_000", "٣", "auto"]
NUMBERS += ["1e20", "-1e20", "9" * 400, str(2**63), str(2**63 - 1), "pairs=99999999999999999999"]
EDITS = [
    "",
    "=",
    "train.lr=",
    "=1",
    "train.lr=nan",
    "train.batch=1e308",
    "budget.tokens=99999999999999999999",
    "seeds=-1",
    "seeds=[]",
    "base=~",
    "arms={a: {}}",
    "x.y.z=1",
    "a=&b [*b]",
    "a." * 3000 + "b=1",
    "data={source: needle, keys: 4611686018427387904}",
    "data={source: needle, validation_examples: 1000000000000000}",
    "base.block.mixer.softcap=1e-320",
    "budget.parameters=/etc/passwd",
    "base=" + "{a: " * 3000,
]
FILES = [
    "runs",
    "norm.yaml",
    "broken.yaml",
    "empty.yaml",
    "list.yaml",
    "binary.yaml",
    "losses.csv",
    "empty.csv",
    "folder",
]

STUDY = """question: Which norm?
source: by hand
baseline: pre
base: {preset: small, d_model: 8, n_layers: 1, block.mixer.heads: 2}
arms: {post: {block.norm_placement: post}}
data: {source: needle, depth: 0, distance: 4}
train: {context: 8, batch: 2}
budget: {tokens: 64}
measure: null
tune: off
"""


def options() -> list[tuple[str, str]]:
    """Every option of every command."""
    found = []
    for name in COMMANDS:
        parser = argparse.ArgumentParser(add_help=False)
        importlib.import_module(COMMANDS[name]).configure(parser)
        found += [(name, option) for action in parser._actions for option in action.option_strings]
    return found


OPTIONS = options()
VALUES = st.one_of(st.sampled_from([*NAMES, *NUMBERS, *EDITS, *FILES]), st.text(alphabet="aé-=:/.\n\t{}[]", max_size=8))


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """A command with an option or two of its own, and odd words before, between and after."""
    name, option = draw(st.sampled_from(OPTIONS))
    busy = name in BUSY
    words = draw(st.lists(st.sampled_from(FILES[2:]) if busy else VALUES, min_size=int(busy), max_size=2))
    more = [other for command, other in OPTIONS if command == name]
    tail = draw(st.lists(st.one_of(VALUES, st.sampled_from(more)), max_size=2))
    return [name, *words, option, draw(VALUES), *tail]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("odd")
    (folder / "norm.yaml").write_text(STUDY)
    (folder / "broken.yaml").write_text("question: [\n")
    (folder / "empty.yaml").write_text("")
    (folder / "list.yaml").write_text("- 1\n- {a: 2}\n")
    (folder / "binary.yaml").write_bytes(bytes(range(256)))
    (folder / "losses.csv").write_text("arm,seed,loss\na,0,1.0\na,1,1.1\nb,0,1.2\nb,1,1.25\n")
    (folder / "empty.csv").write_text("")
    (folder / "folder").mkdir()
    return folder


def contents(folder: Path) -> set[tuple[str, int]]:
    """Files and their sizes."""
    found = (Path(root) / name for root, _, names in os.walk(folder) for name in names)
    return {(str(path.relative_to(folder)), path.lstat().st_size) for path in found}


def said_by(line: list[str]) -> tuple[Any, str]:
    """Status, and what a command wrote to standard error. Nothing that it prints is obeyed by a terminal."""
    error = io.StringIO()
    below = io.BytesIO()
    nothing, taken = (io.TextIOWrapper(bytes_) for bytes_ in (io.BytesIO(), below))  # with bytes below, as files have
    with redirect_stdout(taken), redirect_stderr(error), patch("sys.stdin", nothing):
        try:
            status = cli.main(line)
        except SystemExit as end:
            status = end.code
    taken.flush()
    printed = error.getvalue() + below.getvalue().decode()
    assert all(each.isprintable() or each in "\n\t" or unicodedata.category(each) == "Zs" for each in printed), line
    return status, error.getvalue()


def tried(place: Path, line: list[str]) -> None:
    before = contents(place)
    with chdir(place):
        status, error = said_by(line)
    assert status in (0, 1, 2), (line, status)
    assert "Traceback" not in error, (line, error)
    if status == 2:
        assert error.strip(), line
        named = re.match(r"ablate: (--[a-z-]+)\b", error)
        assert named is None or named[1] in (*line, *(option for name, option in OPTIONS if name == line[0])), error
        assert contents(place) == before, line
    else:
        shutil.rmtree(place / "runs", ignore_errors=True)


@pytest.fixture(autouse=True)
def _no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`~` is a folder of the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    yield


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in (*BUSY, "schema")])
def test_a_word_that_cannot_be_used_is_named_as_it_was_given(name: str, place: Path) -> None:
    """And not by an option that the command lacks. No shell passes a NUL, so `schema` takes its file as it is."""
    tried(place, [name, "a\0b"])


def test_odd_commands_are_refused_in_a_line_and_write_nothing(place: Path) -> None:
    QUICK(given(line=lines())(lambda line: tried(place, line)))()


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_two_thousand_odd_commands_are_refused_in_a_line_and_write_nothing(place: Path) -> None:
    LONG(given(line=lines())(lambda line: tried(place, line)))()
