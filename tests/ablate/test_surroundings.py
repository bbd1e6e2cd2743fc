"""Odd places to run from: beside files named like packages, with closed streams, terminals of other encodings, a home
that cannot be written, variables that hold anything, in a notebook's kernel."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ablate.cli import main
from ablate.commands import COMMANDS
from ablate.machine import recent
from ablate.machine.environment import own_threads, user_cache
from store.terminal import make_writable
from tests.ablate.toy import toy_study
from tests.test_imports import ROOT
from zoo.errors import PluginError
from zoo.settings.registry import plugins

SHADOWING = ("random.py", "token.py", "statistics.py", "evals.py", "datasets/__init__.py", "zoo/__init__.py")
HOMELESS = {"HOME": f"{Path(__file__)}/none"}
BARE = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
PLACES: dict[str, tuple[str, dict[str, str]]] = {
    "closed output": (">&-", {}),
    "closed streams": ("<&- >&- 2>&-", {}),
    "a Latin-1 terminal, no home": ("", {**HOMELESS, "PYTHONIOENCODING": "latin-1"}),
    "an ASCII terminal and locale": ("", {**BARE, "PYTHONIOENCODING": "ascii"}),
}
"""Redirections and environment, by what is odd about a place."""
RUN = ("--scale", "cpu", "--set", "seeds=1", "--workers", "1")
SUITE = ("tests/ablate/test_cli.py", "tests/ablate/test_run.py", "tests/data/test_neighbours.py")
"""Tests that start commands and workers, read and write files and print."""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return toy_study(tmp_path, "{layernorm: {block.norm.kind: layernorm}}", steps=2)


def started(place: str, folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """A Python program that ended, started in a place."""
    redirections, changes = PLACES[place]
    command = ["sh", "-c", f'exec "$@" {redirections}', "sh", sys.executable, *words]
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths, **changes}
    return subprocess.run(command, capture_output=True, cwd=folder, env=environment, check=False)


def test_a_study_runs_beside_files_named_like_packages(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SHADOWING:
        (study.parent / name).parent.mkdir(exist_ok=True)
        (study.parent / name).write_text(f"raise RuntimeError('{name} is not the package')\n")
    monkeypatch.chdir(study.parent)
    assert main(["run", str(study), *RUN]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_a_study_runs_from_an_odd_place(place: str, study: Path) -> None:
    ended = started(place, study.parent, "-m", "ablate", "run", study.name, *RUN)
    assert (ended.returncode, b"Traceback" in ended.stderr) == (0, False), ended.stderr.decode()
    assert (study.parent / "runs" / "studies" / "toy-cpu" / "report.html").is_file()
    shown = ended.stdout.decode("latin-1")
    assert ("report.html" in shown) is ("closed" not in place)
    assert "?" not in shown


def variables() -> list[str]:
    """Names of environment variables in modules that read or set some."""
    code = [
        path.read_text(encoding="utf-8")
        for name in ("zoo", "store", "evals", "ablate")
        for path in (ROOT / name).rglob("*.py")
    ]
    found = {name for text in code if "environ" in text for name in re.findall(r'"([A-Z]+(?:_[A-Z]+)+)"', text)}
    assert {"ABLATE_PLUGINS", "ABLATE_MACHINE_DIR", "XDG_CACHE_HOME", "OMP_NUM_THREADS"} <= found
    return sorted(found)


GARBAGE = (
    "",
    "-1",
    "²",
    "9" * 20,
    "/dev/null/x",
    "relative/x",
    "a:b",
    "=",
    "zoo.norms",
    "\udcff",
    "\x1b[2J",
    "x" * 5000,
)


def test_a_variable_that_holds_anything_is_ignored_or_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in GARBAGE:
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert 1 <= own_threads() <= 9999
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        home = Path(value) if value.startswith("/") else tmp_path / ".cache"
        assert user_cache("x") == home / "ablate/x"
        monkeypatch.setenv("ABLATE_MACHINE_DIR", value)
        assert recent.path().parent == (Path(value) if value.startswith("/") else home / "ablate/machine")
        monkeypatch.setenv("ABLATE_PLUGINS", value)
        if value:
            with pytest.raises(PluginError, match="ABLATE_PLUGINS: expected PACKAGE/NAME=FILE, not "):
                plugins()


@pytest.mark.slow
@pytest.mark.parametrize("variable", variables())
def test_commands_run_whatever_a_variable_holds(
    variable: str, study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(study.parent)
    before = {path.name for path in study.parent.iterdir()}
    for value in GARBAGE:
        monkeypatch.setenv(variable, value)
        for command in (["list"], ["plan", study.name, "--scale", "cpu"]):
            status, said = main(command), capsys.readouterr().err
            assert status == 0 or (status == 2 and variable in said and said.count("\n") == 1), (value, said)
        assert {path.name for path in study.parent.iterdir()} <= {*before, "runs"}


def test_a_refusal_is_said_where_output_is_closed(tmp_path: Path) -> None:
    ended = started("closed output", tmp_path, "-m", "ablate", "run", "none.yaml")
    assert ended.returncode == 2
    assert ended.stderr == b"ablate: none.yaml: cannot be read: No such file or directory\n"


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
def test_every_help_and_long_listing_can_be_written(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding))
    for words in (*([name, "--help"] for name in COMMANDS), ["zoo"], ["zoo", "rope"], ["schema"], ["claims"]):
        try:
            assert main(words) == 0
        except SystemExit as end:
            assert end.code == 0


def test_a_minus_sign_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an encoding has is written as it is, and nothing becomes a question mark."""
    written = {"ascii": rb"-0.32 +- 0.1 | 3 x naive \u03b8 \udcff", "latin-1": b"-0.32 \xb1 0.1 \xb7 3 \xd7 na\xefve "}
    for encoding, expected in written.items():
        raw = io.BytesIO()
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding))
        make_writable()
        print("−0.32 ± 0.1 · 3 × naïve θ \udcff", end="", flush=True)
        assert raw.getvalue().startswith(expected)


CELLS = """
import sys
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

cells = sys.argv[1:]
book = new_notebook(cells=[new_code_cell(cell) for cell in cells])
NotebookClient(book, timeout=300, kernel_name="python3").execute()
print(ascii([output for cell in book.cells for output in cell.outputs]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("nbclient"), reason="needs nbclient and ipykernel")
@pytest.mark.parametrize("widgets", [True, False])
def test_a_study_runs_in_a_kernel(widgets: bool, study: Path) -> None:
    hidden = "import sys, warnings; warnings.simplefilter('error')" + (
        "" if widgets else "; sys.modules['ipywidgets'] = None"
    )
    run = f"import ablate; found = ablate.run({study.name!r}, scale='cpu', sets=['seeds=1'])"
    ended = started(
        "a Latin-1 terminal, no home", study.parent, "-c", CELLS, hidden, run, "found", "ablate.open('runs')"
    )
    assert ended.returncode == 0, ended.stderr.decode()
    shown = ended.stdout.decode()
    assert "text/html" in shown and "Warning" not in shown and "layernorm" in shown


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_suite_passes_on_a_latin_1_terminal_without_a_home() -> None:
    """In the machine's locale: tests write files in its encoding."""
    words = ("-m", "pytest", "-p", "no:cacheprovider", *SUITE)
    ended = started("a Latin-1 terminal, no home", ROOT, *words)
    assert ended.returncode == 0, ended.stdout.decode("latin-1")[-5000:]
