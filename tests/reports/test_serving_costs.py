"""Serving costs in the report: what each choice shows is the mean over seeds, and older documents show speed alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ablate.store import Store
from reports.figures import Figure, draw
from reports.summary import summarise_study
from tests.reports.factory import Arm, StudyOf

STUDY = StudyOf([Arm("base", [2.4, 2.5], steps=4), Arm("gqa", [2.3, 2.4], steps=4, speed=5000)])


def figure(folder: Path, key: str) -> Figure:
    return next(each for each in draw(summarise_study(folder)) if each.key == key)


def with_serving(root: Path) -> Path:
    """Each decoding point has the time that its speed says, 40 % of the bandwidth, and 64 MiB and one per seed."""
    folder, store = STUDY.write(root), Store(root)
    for arm in STUDY.arms:
        for seed in range(2):
            digest = STUDY.digest(arm, seed)
            document = store.read_measure(digest, "m1")
            assert document is not None
            document["decode"] = [point | serving(point, seed) for point in document["decode"]]
            store.write_json(store.measure_path(digest, "m1"), document)
    return folder


def serving(point: dict[str, Any], seed: int) -> dict[str, Any]:
    seconds = point["batch"] / point["tokens_per_second"]["median"]
    return {
        "seconds_per_output_token": dict.fromkeys(("median", "q25", "q75"), seconds),
        "bandwidth_utilisation": dict.fromkeys(("median", "q25", "q75"), 0.4),
        "peak_memory_bytes": (64 + seed) * 2**20,
    }


def test_each_choice_of_the_switch_is_the_mean_over_seeds(tmp_path: Path) -> None:
    found = figure(with_serving(tmp_path), "decode-by-context")
    (switch,) = found.switches
    options = {option.label: option for option in switch.options}
    assert list(options) == [
        "speed (tokens/s)",
        "time per output token (ms)",
        "memory bandwidth used (%)",
        "peak memory (MiB)",
    ]
    # The first line is the first arm's at batch 1: 400/(1 + context/512) tokens/s, the second seed 3 % faster.
    speeds = [400 / (1 + context / 512) for context in (64, 128, 256)]
    times = [1000 * (1 / s + 1 / (1.03 * s)) / 2 for s in speeds]
    assert options["time per output token (ms)"].traces["y"][0] == pytest.approx(times, rel=1e-4)
    assert options["memory bandwidth used (%)"].traces["y"][0] == pytest.approx([40] * 3)
    assert options["peak memory (MiB)"].traces["y"][0] == pytest.approx([64.5] * 3)
    assert options["peak memory (MiB)"].traces["error_y.array"][0] == pytest.approx([0.5] * 3)
    assert all(len(option.traces["y"]) == len(found.drawing.data) for option in switch.options)
    row = found.table.rows[0]
    assert row[:3] == ("base", "1", "64")
    assert row[5:] == ("40 (40 to 40)", "64.5 (64 to 65)")


def test_documents_of_speed_alone_have_no_choice(tmp_path: Path) -> None:
    folder = STUDY.write(tmp_path)
    for key in ("decode-by-context", "prefill-by-context"):
        found = figure(folder, key)
        assert found.switches == ()
        assert found.table.columns == ("arm", "batch", "context (tokens)", "speed (tokens/s)")
