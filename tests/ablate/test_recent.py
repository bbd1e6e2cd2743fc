"""Figures of this machine that are kept for an hour."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from ablate.machine import recent
from ablate.planning.durations import busy_line


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv(recent.FOLDER, str(tmp_path))
    return recent.path()


def measured(name: str, value: float = 1.0) -> bool:
    """Whether a figure was measured, and not known."""
    calls: list[float] = []

    def measure() -> float:
        calls.append(value)
        return value

    assert recent.recently(name, measure) == value
    return bool(calls)


def test_figures_are_kept_whatever_bytes_the_machines_variables_hold(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(recent.FOLDER, str(tmp_path))
    monkeypatch.setenv("MKL_NUM_THREADS", "1\udcff")  # a byte that is no UTF-8, as Python reads it
    assert [measured("a"), measured("a")] == [True, False]


def test_a_figure_is_measured_once_an_hour(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [measured("a"), measured("a"), measured("b", 2.0), measured("a")] == [True, False, True, False]
    assert recent.read() == {"a": 1.0, "b": 2.0}
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + recent.HOUR + 60)
    assert recent.read() == {}
    assert measured("a")
    monkeypatch.setattr(time, "time", lambda: now)
    assert recent.read() == {}, "a clock that was put back"


def test_a_figure_of_a_busy_machine_is_measured_again_when_it_is_idle(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And while it is as busy as then, the forecast, which has that in it, is not said to take longer still."""
    cores = len(os.sched_getaffinity(0))
    load = [0.0]
    monkeypatch.setattr(os, "getloadavg", lambda: (load[0], 0.0, 0.0))
    monkeypatch.setattr(recent, "used", {})
    assert measured("a") and busy_line(1) == []
    load[0] = 7.0 * cores - 1
    assert not measured("a") and busy_line(1)[0].endswith("expect up to 7 times as long")
    assert measured("b") and busy_line(1)[0].endswith("idle, it would be up to 7 times as fast")
    load[0] = 0.0
    assert not measured("a") and measured("b") and busy_line(1) == []


def test_only_a_busy_machine_and_a_figure_that_it_slows_are_called_so(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores = len(os.sched_getaffinity(0))
    load = [1.1 * cores - 1]
    monkeypatch.setattr(os, "getloadavg", lambda: (load[0], 0.0, 0.0))
    monkeypatch.setattr(recent, "used", {})
    assert measured("a")
    load[0] = 1.6 * cores - 1
    assert busy_line(1)[0].endswith("expect up to 1.5 times as long")
    load[0] = 7.0 * cores - 1
    assert recent.recently("an error", lambda: 1.0, slows=False) == 1.0
    assert busy_line(1)[0].endswith("expect up to 6.4 times as long")
    load[0] = 0.0
    assert recent.recently("an error", lambda: 2.0, slows=False) == 1.0


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"machine": 3, "figures": {"a": [1.0, NOW, 1.0]}}',
        '{"machine": MACHINE, "figures": [1]}',
        '{"machine": MACHINE, "figures": {"a": 1.0}}',
        '{"machine": MACHINE, "figures": {"a": [null, NOW, 1.0]}}',
        '{"machine": MACHINE, "figures": {"a": [NaN, NOW, 1.0]}}',
        '{"machine": MACHINE, "figures": {"a": [-1.0, NOW, 1.0]}}',
        '{"machine": MACHINE, "figures": {"a": ["1", NOW, 1.0]}}',
        '{"machine": MACHINE, "figures": {"a": [1.0, NOW]}}',
        '{"machine": MACHINE, "figures": {"a": [1.0, NOW, NaN]}}',
    ],
)
def test_what_is_damaged_or_foreign_is_measured_again(content: str, file: Path) -> None:
    text = content.replace("MACHINE", json.dumps(recent.machine())).replace("NOW", str(time.time()))
    file.write_text(text, encoding="utf-8")
    assert measured("a") and not measured("a")


def test_figures_of_another_setting_are_others(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured("a")
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    assert measured("a") and recent.path() != file
    recent.path().write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    assert recent.read() == {}, "copied from another machine"


def test_a_folder_that_cannot_be_written_to_keeps_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    monkeypatch.setenv(recent.FOLDER, str(tmp_path / "file" / "folder"))
    assert measured("a") and measured("a")
