"""Serving costs in the report: what each choice shows is the mean over seeds, and older documents show speed alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from scipy import stats

from reports.page.figures.base import Figure
from reports.page.sections import draw, summarise_study
from reports.page.sections.caches import Caches
from reports.page.sections.trade_off import TradeOff
from reports.page.wording.tables import closing_table
from store import Store, StudyFolder
from tests.reports.factory import Arm, StudyOf, changed, costs_of, shown

STUDY = StudyOf([Arm("base", [2.4, 2.5], steps=4), Arm("gqa", [2.3, 2.4], steps=4, speed=5000)])


def figure(folder: Path, key: str) -> Figure:
    return next(each for each in draw(summarise_study(folder)) if each.key == key)


def with_serving(root: Path, used: Mapping[str, float] = MappingProxyType({})) -> Path:
    """Each decoding point has the time that its speed says, 40 % of the bandwidth or what an arm has `used`, and 64 MiB
    and one per seed."""
    folder, store = STUDY.write(root), Store(root)
    for arm in STUDY.arms:
        for seed in range(2):
            digest = STUDY.digest(arm, seed)
            with changed(store.measure_path(digest, "m1")) as document:
                document["decode"] = [
                    point | serving(point, seed, used.get(arm.name, 0.4)) for point in document["decode"]
                ]
    return folder


def alike(value: float) -> dict[str, float]:
    """Quartiles of repeats that were all the same."""
    return dict.fromkeys(("median", "q25", "q75"), value)


def serving(point: dict[str, Any], seed: int, used: float) -> dict[str, Any]:
    seconds = point["batch"] / point["tokens_per_second"]["median"]
    return {
        "seconds_per_output_token": alike(seconds),
        "bandwidth_utilisation": alike(used if point["batch"] == 1 else 0.01),
        "peak_memory_bytes": (64 + seed) * 2**20,
    }


def test_each_choice_of_the_switch_is_a_mean(tmp_path: Path) -> None:
    """Speeds over processes, of all arms in the same ones; bytes and bandwidth over the seeds that were measured."""
    found = figure(with_serving(tmp_path), "decode-by-context")
    (switch,) = found.switches
    options = {option.label: option for option in switch.options}
    assert list(options) == [
        "speed (tokens/s)",
        "time per output token (ms)",
        "memory bandwidth used (%)",
        "peak memory (MiB)",
    ]
    # The first line is the first arm's at batch 1.
    speeds = np.array([400 / (1 + context / 512) for context in (64, 128, 256)])
    assert options["speed (tokens/s)"].traces["y"][0] == pytest.approx(speeds, rel=1e-4)
    assert options["time per output token (ms)"].traces["y"][0] == pytest.approx(1000 / speeds, rel=1e-4)
    assert options["memory bandwidth used (%)"].traces["y"][0] == pytest.approx([40] * 3)
    assert options["peak memory (MiB)"].traces["y"][0] == pytest.approx([64.5] * 3)
    assert all(len(option.traces["y"]) == len(found.drawing.data) for option in switch.options)
    row = found.table.rows[0]
    assert row[:3] == ("base", "1", "64")
    assert row[5:] == ("40 (40 to 40)", "64.5 (64 to 65)")


def test_speeds_that_were_not_measured_against_each_other_are_not_drawn(tmp_path: Path) -> None:
    """Speeds are left out as in stores of old, and where other programs had the processor."""
    assert "decode-by-context" not in [
        each.key for each in draw(summarise_study(replace(STUDY, processes=0).write(tmp_path / "a")))
    ]
    folder = STUDY.write(tmp_path / "b")
    StudyFolder(folder).write_costs(costs_of({arm.name: arm.speed for arm in STUDY.arms}, waited=0.3))
    keys = [each.key for each in draw(summarise_study(folder))]
    assert "decode-by-context" not in keys and "prefill-by-context" not in keys


@pytest.mark.parametrize(
    ("used", "who"),
    [({}, None), ({"base": 0.24}, "base"), ({arm.name: 0.02 for arm in STUDY.arms}, "every arm")],
)
def test_decoding_that_waits_for_operations_is_marked(tmp_path: Path, used: dict[str, float], who: str | None) -> None:
    """The mark is for one sequence: the larger batches here use 1 % throughout."""
    folder = with_serving(tmp_path, used)
    for key in ("decode-by-context", "trade-off"):
        _, told, rest = figure(folder, key).note.partition("Decoding one sequence, ")
        assert bool(told) == (who is not None)
        assert rest.startswith(f"{who} used less than 25 % of the memory bandwidth" if who else "")


KINDS = {"int4": (0.25, 1.5, 0.02), "sink, recent 60": (0.5, 1.0, 0.3)}
"""Values for each kind of cache: bytes and time per token against a plain cache, and nats that it adds."""


def with_kinds(root: Path, refused: str = "") -> Path:
    """Every kind at every point of the plain cache, the second seed a tenth slower with it; gqa has no `refused`."""
    folder, store = with_serving(root), Store(root)
    for arm in STUDY.arms:
        for seed in range(2):
            digest = STUDY.digest(arm, seed)
            with changed(store.measure_path(digest, "m1")) as document:
                document["caches"], losses = {}, {"plain": {"nats_per_token": {"value": 2.0, "stderr": 0.1}}}
                for kind, (size, time, added) in KINDS.items():
                    document["caches"][kind] = points_of(document, size, time * (1 + 0.1 * seed))
                    losses[kind] = {
                        "nats_per_token": {"value": 2.0 + added, "stderr": 0.1},
                        "added": {"value": added + 0.01 * seed, "stderr": 0.004},
                    }
                    if arm.name == "gqa" and kind == refused:
                        document["caches"][kind] = {
                            part: [{k: p[k] for k in ("context", "batch")} | {"reason": "no <keys>"} for p in points]
                            for part, points in document["caches"][kind].items()
                        }
                        losses[kind] = {"reason": "no <keys>"}
                document["cache_loss"] = {"length": 256, "windows": 8, "kinds": losses}
    return folder


def points_of(document: dict[str, Any], size: float, time: float) -> dict[str, Any]:
    return {
        "cache": [p | {f"{k}_bytes": int(size * p[f"{k}_bytes"]) for k in ("declared", "allocated")}
                  for p in document["cache"]],
        "prefill": document["prefill"],
        "decode": [
            p
            | {"seconds_per_output_token": {k: v * time for k, v in p["seconds_per_output_token"].items()}}
            | {"tokens_per_second": {k: v / time for k, v in p["tokens_per_second"].items()}}
            for p in document["decode"]
        ],
    }  # fmt: skip


def test_kinds_of_cache_are_compared_with_a_plain_one_of_the_same_run(tmp_path: Path) -> None:
    found = shown(summarise_study(with_kinds(tmp_path)), Caches).found
    assert found.kinds == ("plain", *KINDS)
    assert found.reasons == ()
    assert len(found.costs) == 2 * 3 * 3 * 2
    for cost in found.costs:
        if cost.cache == "plain":
            assert all(point.mean == pytest.approx(1) for point in cost.ratios.values())
            continue
        size, time, _ = KINDS[cost.cache]
        assert cost.ratios["cache"].mean == pytest.approx(size, rel=1e-3)
        slower = cost.ratios["output token"]
        assert (slower.mean, slower.low, slower.high) == pytest.approx((1.05 * time, time, 1.1 * time))
        assert cost.ratios["decode"].mean == pytest.approx((1 / time + 1 / (1.1 * time)) / 2)
    losses = {(loss.arm, loss.cache): loss for loss in found.losses}
    assert set(losses) == {(arm.name, kind) for arm in STUDY.arms for kind in KINDS}
    int4 = losses["gqa", "int4"]
    assert (int4.length, int4.added.mean) == (256, pytest.approx(0.025))
    # Windows of text are shared by seeds, whose own scatter shrinks to √(0.01²/2 / 2), with one degree of freedom.
    assert int4.half_width == pytest.approx(math.hypot(stats.norm.ppf(0.975) * 0.004, stats.t.ppf(0.975, 1) * 0.005))


def test_the_figure_of_kinds_has_a_panel_per_quantity_and_a_point_per_arm(tmp_path: Path) -> None:
    found = figure(with_kinds(tmp_path), "kinds-of-cache")
    titles = [each.text for each in found.drawing.layout.annotations]
    assert titles[:3] == [
        "bytes of the cache (× plain)",
        "time per output token, batch 1 (× plain)",
        "time per output token, batch 8 (× plain)",
    ]
    assert titles[-1] == "loss added at 256 tokens (nats/token)"
    points = [trace for trace in found.drawing.data if trace.x[0] is not None]
    of_bytes = {(trace.legendgroup, round(trace.y[0])): trace.x[0] for trace in points if trace.xaxis == "x"}
    assert of_bytes == {(arm.name, i): pytest.approx(v[0]) for arm in STUDY.arms for i, v in enumerate(KINDS.values())}
    assert [trace.name for trace in found.drawing.data if trace.showlegend is not False] == ["base", "gqa"]
    row = next(row for row in found.table.rows if row[:4] == ("gqa", "int4", "256", "8"))
    assert row[-1] == "+0.0250 ± 0.0640"


def test_an_arm_that_cannot_have_a_kind_says_why(tmp_path: Path) -> None:
    found = figure(with_kinds(tmp_path, refused="int4"), "kinds-of-cache")
    assert "gqa was not measured with int4 (no <keys>)." in found.note
    assert not any(row[:2] == ("gqa", "int4") for row in found.table.rows)


def test_what_other_figures_show_is_of_plain_caches(tmp_path: Path) -> None:
    plain, kinds = with_serving(tmp_path / "plain"), with_kinds(tmp_path / "kinds")
    without, with_them = summarise_study(plain), summarise_study(kinds)
    tables_of_plain, tables = ({each.key: each.table for each in draw(of)} for of in (without, with_them))
    for key in ("decode-by-context", "prefill-by-context"):
        assert tables[key] == tables_of_plain[key]
    assert "kinds-of-cache" not in tables_of_plain
    of_plain, of_kinds = shown(without, TradeOff), shown(with_them, TradeOff)
    assert of_plain.costs == of_kinds.costs


def test_an_encoder_has_a_time_to_read_and_nothing_is_missing(tmp_path: Path) -> None:
    """No cache, no decoding, no warning about either; what a context is stands below the figure."""
    folder, store = STUDY.write(tmp_path), Store(tmp_path)
    with changed(store.study(STUDY.name, "cpu").document_path) as study:
        study["conventions"] = ["Encoders read a context."]
        study["arms"] = [arm | {"kv_bytes_per_token": None, "cache_bytes": []} for arm in study["arms"]]
    for digest in (STUDY.digest(arm, seed) for arm in STUDY.arms for seed in range(2)):
        with changed(store.measure_path(digest, "m1")) as document:
            for part in ("cache", "decode"):
                points = [{"context": p["context"], "batch": p["batch"], "reason": "no cache"} for p in document[part]]
                document[part] = points
            document["prefill"] = [p | {"seconds_to_read": alike(p["context"] / 1000)} for p in document["prefill"]]
            document["prefill"][0] = {"context": 64, "batch": 1, "reason": "out of memory"}
            document["kv_bytes_per_token"] = None
    timed = costs_of({arm.name: arm.speed for arm in STUDY.arms})
    reading = [
        process.model_copy(update={"points": tuple(p for p in process.points if p.work != "decoding")})
        for process in timed.processes
    ]
    StudyFolder(folder).write_costs(timed.model_copy(update={"processes": tuple(reading)}))
    summary = summarise_study(folder)
    assert summary.unmeasured is None
    keys = [each.key for each in draw(summary)]
    assert "decode-by-context" not in keys and "cache-by-context" not in keys
    found = figure(folder, "prefill-by-context")
    (switch,) = found.switches
    assert [option.label for option in switch.options] == ["speed (tokens/s)", "time to read (ms)"]
    assert switch.options[1].traces["y"][0] == pytest.approx([c * (1 + c / 512) / 12 for c in (64, 128, 256)], rel=1e-4)
    assert "Encoders read a context." in found.note
    missing = [warning for warning in summary.warnings if "not measured" in warning]
    assert missing == [
        f"{arm}: prefill was not measured at context 64, batch 1 (out of memory)." for arm in ("base", "gqa")
    ]
    header, *rows = closing_table(summary)
    assert {row[header.index("KV bytes/token")] for row in rows} == {"–"}
