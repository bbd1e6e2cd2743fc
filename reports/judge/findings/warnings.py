"""Warnings that affect a whole study: gaps, divergence, mixed machines, wrong byte counts."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from reports.judge.reading.collected import Collected
from reports.judge.reading.outcomes import FAILED
from reports.judge.sentences import listed

BUDGET_TOLERANCE = 0.01
SECONDS_TOLERANCE = 0.05
FEW_SEEDS = 3
POWER_LIMIT = "power limit"
SLOWED_SHARE = 0.05
OF_A_GPU = ("fused (", "flex", "varlen")
"""Substrings of the names of GPU-only attention backends."""


def find(data: Collected) -> tuple[str, ...]:
    """All warnings, the most serious first."""
    checks = (_failed, _missing, _few_seeds, _unlike, _unmatched, _off_time, _kernels, _slowed, _dirty)
    return tuple(text for check in checks for text in check(data))


def environment(data: Collected) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Each key of the runs' environments and numerics, with its distinct values."""
    seen: dict[str, dict[str, None]] = {}
    for found in dict.fromkeys(data.environments.values()):  # thousands of runs share a few
        for key, value in found:
            seen.setdefault(key, {})["unknown" if value is None else str(value)] = None
    for key in ("dtype", "matmul", "data"):
        seen[key] = dict.fromkeys(data.runs[key].drop_nulls().unique(maintain_order=True))
    return tuple((key, tuple(values)) for key, values in seen.items() if values)


def _kernels(data: Collected) -> Iterator[str]:
    """Attention kernels of a GPU differ up to twofold in speed, and windows and biases decide which one is used."""
    known = data.runs.drop_nulls("attention").unique(["arm", "attention"], maintain_order=True)
    arms = {str(kernel): list(part["arm"]) for (kernel,), part in known.group_by("attention", maintain_order=True)}
    if len(arms) > 1 and any(name in kernel for kernel in arms for name in OF_A_GPU):
        each = listed([f"{kernel} in {listed(names)}" for kernel, names in arms.items()])
        yield f"Arms used different attention kernels, {each}, so differences in speed are partly due to the kernels."


def _slowed(data: Collected) -> Iterator[str]:
    """A GPU at its power limit is as fast as it can be; a hot one is slower than others of its kind."""
    shares: dict[str, list[float]] = {}
    for state in data.gpus.values():
        for reason, share in state.slowed_by.items():
            if reason != POWER_LIMIT and share > SLOWED_SHARE:
                shares.setdefault(reason, []).append(share)
    for reason, found in shares.items():
        runs, most = f"{len(found)} run{'s' if len(found) > 1 else ''}", 100 * max(found)
        yield (
            f"The GPU was throttled in {runs} ({reason}, up to {most:.0f} % of the time): its speeds are lower than"
            " those of other GPUs of its kind."
        )


def _failed(data: Collected) -> Iterator[str]:
    for arm, runs in _by_arm(data):
        for status in FAILED:
            gone = runs.filter(status=status)
            if gone.height:
                reasons = "; ".join(dict.fromkeys(gone["reason"].fill_null("no reason recorded")))
                others = gone.height < runs.height
                flattered = " Its averages leave these seeds out, so they are too favourable." if others else ""
                yield f"{arm}: {gone.height} of {runs.height} seeds {status} ({_seeds(gone)}: {reasons}).{flattered}"


def _missing(data: Collected) -> Iterator[str]:
    for arm, runs in _by_arm(data):
        gone = runs.filter(pl.col("status").is_in(["absent", "partial"]))
        if gone.height:
            yield f"{arm}: {gone.height} of {runs.height} runs have no result ({_seeds(gone)})."


def _few_seeds(data: Collected) -> Iterator[str]:
    finished = {name: runs.filter(status="finished").height for name, runs in _by_arm(data)}
    if finished and max(finished.values()) == 1:
        yield "One seed per arm: seed noise is unknown, so differences cannot be judged."
        return
    few = [name for name, seeds in finished.items() if 0 < seeds < FEW_SEEDS]
    if few and data.study.design is None:  # the runs of a design estimate one noise together
        yield (
            f"{', '.join(few)}: fewer than {FEW_SEEDS} finished seeds. Intervals over so few are wide, and assume"
            " normally distributed seed noise."
        )


def _unlike(data: Collected) -> Iterator[str]:
    watched = {
        "device": "speeds and memory are not comparable",
        "threads": "speeds are not comparable",
        "torch": "losses may differ in the last digits, speeds more",
        "python": "data and speed may differ",
        "ablate": "the runs were trained by different versions of this project",
        "git_commit": "the runs were trained by different commits of this project",
        "dtype": "losses and speeds are not comparable",
        "matmul": "losses may differ in the last digits, speeds more",
    }
    for key, values in environment(data):
        if len(values) > 1 and key in watched:
            yield f"The runs differ in {key} ({', '.join(sorted(values))}): {watched[key]}."


def _unmatched(data: Collected) -> Iterator[str]:
    for matched in data.study.matched.split(" and "):
        used = {
            arm.name: {
                "flops": arm.flops,
                "tokens": arm.tokens,
                "parameters": arm.parameters,
                "non-embedding parameters": arm.parameters - arm.parameters_embedding,
                "seconds": arm.seconds,
            }.get(matched)
            for arm in data.study.arms
            if "start.arm" not in arm.edits
        }
        base = used.get(data.study.baseline)
        for name, amount in used.items():
            if amount and base and abs(amount / base - 1) > BUDGET_TOLERANCE:
                yield f"{name}: {matched} differ from the baseline's by {100 * (amount / base - 1):+.1f} %."


def _off_time(data: Collected) -> Iterator[str]:
    """Warn of runs whose time differed from the budget: step times have changed since they were measured."""
    allowed = data.study.budget.seconds
    if allowed is None:
        return
    for arm, runs in _by_arm(data):
        took = sorted(runs.filter(status="finished")["train_seconds"].drop_nulls())
        if any(abs(seconds / allowed - 1) > SECONDS_TOLERANCE for seconds in took):
            off = " to ".join(f"{100 * (seconds / allowed - 1):+.1f}" for seconds in dict.fromkeys((took[0], took[-1])))
            yield f"{arm}: training time missed the budget of {allowed:g} s ({off} %)."


def _dirty(data: Collected) -> Iterator[str]:
    if any(found.git_dirty for found in data.environments.values()):
        yield "Some runs were trained from a working tree with uncommitted changes."


def _by_arm(data: Collected) -> Iterator[tuple[str, pl.DataFrame]]:
    for arm in data.study.arms:
        yield arm.name, data.runs.filter(arm=arm.name)


def _seeds(runs: pl.DataFrame) -> str:
    return f"seed{'s' if runs.height > 1 else ''} {', '.join(map(str, runs['seed']))}"
