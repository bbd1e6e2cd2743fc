"""What somebody else wrote, where a file of theirs is read: one line that names it, within a moment."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ablate.cli import main
from ablate.running.worker import logged
from store import Store
from tests.ablate.full_store import CHECKED_KINDS, Kind, files_by_kind

NORM = """
from typing import Literal
from zoo.norms import Norm
HEAD
class MeanNorm(Norm):
    kind: Literal["meannorm"] = "meannorm"
BODY
"""


def a_pipe(path: Path) -> None:
    """Whoever opens it to read waits for a writer that never comes."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def a_device(path: Path) -> None:
    """Without an end."""
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


IRREGULAR = (a_pipe, a_device)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", IRREGULAR)
@pytest.mark.parametrize("kind", CHECKED_KINDS, ids=lambda kind: kind.pattern)
def test_check_does_not_read_what_is_no_regular_file(
    kind: Kind, make: Callable[[Path], None], full: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = files_by_kind(full)[0][kind][0]
    content = path.read_bytes()
    make(path)
    try:
        capsys.readouterr()
        assert main(["check", str(full)]) == 1
        assert f"{path} is not a regular file" in capsys.readouterr().out
    finally:
        path.unlink()
        path.write_bytes(content)


@pytest.mark.parametrize("make", [*IRREGULAR, Path.touch])
def test_check_notices_what_is_no_folder(
    make: Callable[[Path], None], full: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run's place has a name as digests are: the shorter ones here are made up."""
    folders = [path for path in sorted(full.glob("[!.]*")) if path.is_dir()]
    runs = [path for path in folders if (path / "run.json").exists()]
    above = [path for path in folders if path not in runs or len(path.name) >= 8]
    runs = [path for path in runs if path in above]
    inside = [each for path in above for each in path.glob("*/") if path not in runs]
    assert runs and len(above) > len(runs) + 5 and len(inside) > 5
    for path in (*above, *inside):
        aside = path.rename(tmp_path / "aside")
        make(path)
        try:
            capsys.readouterr()
            assert main(["check", str(full)]) == 1, path
            assert f"{path} is no folder" in capsys.readouterr().out
        finally:
            path.unlink()
            aside.rename(path)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", IRREGULAR)
def test_a_plugin_or_a_tokenizer_that_is_no_regular_file_is_one_line(
    make: Callable[[Path], None], study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "given.py"
    make(path)
    store = ["--store", str(tmp_path / "runs")]
    assert main(["plan", str(study), *store, "--plugin", str(path)]) == 2
    tokenizer = f"data.tokenizer={{kind: file, path: {path}}}"
    assert main(["plan", str(study), *store, "--set", tokenizer]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "not a regular file" in first and "not a regular file" in second
    assert str(path) in first and str(path) in second


@pytest.mark.parametrize(
    ("head", "body", "said"),
    [
        pytest.param("raise RuntimeError('two\\nlines')", "", "RuntimeError: two lines", marks=pytest.mark.slow),
        ("import sys; sys.exit(3)", "", "SystemExit: 3"),
        pytest.param("import nowhere", "", "ModuleNotFoundError: No module named 'nowhere'", marks=pytest.mark.slow),
        ("from abc import abstractmethod", "    @abstractmethod\n    def unwritten(self): ...", "MeanNorm lacks "),
    ],
)
def test_a_plugin_that_cannot_be_used_is_one_line_that_names_it(
    head: str, body: str, said: str, study: Path, tmp_path: Path
) -> None:
    path = tmp_path / "meannorm.py"
    path.write_text(NORM.replace("HEAD", head).replace("BODY", body))
    command = ["plan", str(study), "--store", str(tmp_path / "runs"), "--plugin", str(path)]
    found = subprocess.run([sys.executable, "-m", "ablate", *command], capture_output=True, text=True, check=False)
    (line,) = found.stderr.splitlines()
    assert found.returncode == 2
    assert str(path) in line and said in line, line


@pytest.mark.parametrize("tokens", ["99999999999999999999", "999999999999"])
def test_more_tokens_than_there_is_room_for_is_one_line(
    tokens: str, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = Store(copy).runs()[0]
    with pytest.raises(SystemExit, match="2"):
        raise SystemExit(main(["generate", digest, "--store", str(copy), "--prompt", "norm", "--tokens", tokens]))
    (line,) = capsys.readouterr().err.splitlines()
    assert "tokens" in line


def test_a_log_for_people_on_a_full_disk_prints_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = Store(tmp_path)
    store.run_dir("a").mkdir()
    with logged(store, "a"):
        monkeypatch.setattr(logging.FileHandler, "flush", full, raising=False)
        logging.getLogger("ablate").info("a line")
        monkeypatch.undo()
    assert capsys.readouterr().err == ""
