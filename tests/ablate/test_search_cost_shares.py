"""Shares of a cost's variance over a space, against those counted by hand over its grid."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from itertools import product
from pathlib import Path

import pytest
from scipy.stats import binom

from ablate.data.identity import DataIdentity
from ablate.planning.make_plan import make_plan
from ablate.running.request import Request
from ablate.searching import cost_shares as module
from ablate.searching.cost_shares import cost_shares
from ablate.searching.trial_runner import StudyTrialRunner
from ablate.study.problems import StudyError
from ablate.study.search_space import values_of
from store import Store
from tests.ablate.known import study_of

COSTS = ("parameters", "flops_per_token", "kv_bytes_per_token")
REPETITIONS = 12
RATE = "train.lr: {log: [1e-3, 1e-1]}"
WIDTHS = f"{{d_model: {{range: [8, 32], step: 8}}, block.mixer.kv_heads: [1, 2, 4], {RATE}}}"
PARTS = (
    "{block.ffn: {choice: [swiglu, topk_moe]}, block.ffn.experts: {range: [2, 4]}, block.mixer.heads: [2, 4, 8],"
    f" block.mixer.kv_heads: [1, 2, 4], n_layers: {{range: [1, 3]}}, {RATE}}}"
)
"""Experts are asked of one part alone, and four keys cannot be shared by two heads."""


def laboratory(folder: Path, space: str) -> StudyTrialRunner:
    return StudyTrialRunner(
        study_of(folder, space),
        lambda asked: make_plan(asked, identify=lambda _: DataIdentity("0" * 32, 257, "")),
        Store(folder),
        lambda _, run: Request(store=str(folder), corpus=str(folder), identity=run),
    )


def by_hand(lab: StudyTrialRunner, cost: str) -> dict[str, float]:
    """The mean variance among settings that differ in one value, over the variance of all: no arrays, no draws."""
    axes = {path: values_of(axis) for path, axis in lab.space.axes.items() if path != "train.lr"}
    known: dict[tuple[object, ...], float] = {}
    for values in product(*axes.values()):
        params: dict[str, object] = {**dict(zip(axes, values, strict=True)), "train.lr": 0.01}
        for path in list(params):
            if not lab.space.has({other: of for other, of in params.items() if other != path}, path):
                del params[path]
        try:
            known[values] = lab.costs(params, [cost])[cost]
        except StudyError:
            continue
    whole, found = statistics.pvariance(known.values()), {"train.lr": 0.0}
    for place, path in enumerate(axes):
        groups = defaultdict(list)
        for values, of in known.items():
            groups[values[:place] + values[place + 1 :]].append(of)
        within = sum(len(group) * statistics.pvariance(group) for group in groups.values()) / len(known)
        found[path] = within / whole if whole else 0.0
    return found


@pytest.mark.parametrize("space", [WIDTHS, PARTS])
def test_shares_of_a_small_space_are_those_of_its_grid(space: str, tmp_path: Path) -> None:
    lab = laboratory(tmp_path, space)
    for cost, shares in cost_shares(lab, COSTS).items():
        assert {path: each.share for path, each in shares.items()} == pytest.approx(by_hand(lab, cost)), cost
        assert all(each.interval is None and 0 <= each.share <= 1 for each in shares.values())
        assert shares["train.lr"].share == 0


def test_shares_of_a_product_are_those_of_its_formula(tmp_path: Path) -> None:
    """Bytes of a cache with heads of a width d / 4 are in proportion to k · d: Var(k) E(d²) / Var(k · d)."""
    shares = cost_shares(laboratory(tmp_path, WIDTHS), ["kv_bytes_per_token"])["kv_bytes_per_token"]
    d, k = [8, 16, 24, 32], [1, 2, 4]
    squares = [statistics.fmean(value**2 for value in of) for of in (d, k)]
    whole = math.prod(squares) - (statistics.fmean(d) * statistics.fmean(k)) ** 2
    assert shares["block.mixer.kv_heads"].share == pytest.approx(statistics.pvariance(k) * squares[0] / whole)
    assert shares["d_model"].share == pytest.approx(statistics.pvariance(d) * squares[1] / whole)


def test_shares_of_a_large_space_are_estimated_and_say_how_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine of ten intervals hold the share that all combinations give."""
    monkeypatch.setattr(module, "MOST", 0)
    cost, held = "kv_bytes_per_token", []
    for space in (WIDTHS, PARTS):
        lab = laboratory(tmp_path, space)
        exact = by_hand(lab, cost)
        for seed in range(REPETITIONS):
            for path, (share, interval) in cost_shares(lab, [cost], seed)[cost].items():
                assert interval is not None and 0 <= interval[0] <= share <= interval[1] <= 1
                assert (share == 0) == (exact[path] == 0)
                assert share == pytest.approx(exact[path], abs=0.2), path
                if share > 0:
                    held.append(interval[0] <= exact[path] <= interval[1])
    assert len(held) == 5 * REPETITIONS
    assert sum(held) >= binom.ppf(0.005, len(held), 0.9)


def test_one_setting_alone_decides_all_of_a_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose share an estimate would often put above 1."""
    lab = laboratory(tmp_path, f"{{n_layers: {{range: [1, 9]}}, {RATE}}}")
    assert cost_shares(lab, COSTS)["parameters"]["n_layers"] == (pytest.approx(1.0), None)
    monkeypatch.setattr(module, "MOST", 0)
    share, interval = cost_shares(lab, COSTS)["parameters"]["n_layers"]
    assert interval is not None and 0.8 < interval[0] <= share <= interval[1] == pytest.approx(1.0, abs=0.05)
    assert share <= 1


def test_a_space_of_which_nothing_can_be_built_has_no_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = laboratory(tmp_path, "{block.mixer.heads: [3, 5], block.mixer.kv_heads: [2, 4]}")
    for most in (module.MOST, 0):
        monkeypatch.setattr(module, "MOST", most)
        assert {each.share for each in cost_shares(lab, COSTS)["parameters"].values()} == {0.0}


def test_no_cost_depends_on_the_rate(tmp_path: Path) -> None:
    shares = cost_shares(laboratory(tmp_path, f"{{{RATE}}}"), COSTS)
    assert shares == {cost: {"train.lr": (0.0, None)} for cost in COSTS}
