"""Names of arms and settings in readable form, alone and in lists."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from reports.judge.sentences import listed


def spelled(arm: str) -> str:
    """A grid cell's name with its settings, without their paths: `base · kv heads 2 · window 32`."""
    return _joined(_parts(arm))


def brief(arms: Sequence[str]) -> dict[str, str]:
    """`spelled` for each arm. If all names begin with the same arm, only their settings remain."""
    parts = {arm: _parts(arm) for arm in arms}
    is_grid_of_one = len(arms) > 1 and len({first for first, *_ in parts.values()}) == 1
    return {arm: _joined(found[1:] if is_grid_of_one and len(found) > 1 else found) for arm, found in parts.items()}


def setting_name(path: str) -> str:
    """`block.mixer.kv_heads` → `kv heads`; a symbol such as `d_model` stays."""
    tail = path.rpartition(".")[2]
    return tail if tail[1:2] == "_" else tail.replace("_", " ")


def _parts(arm: str) -> list[tuple[str, str]]:
    """(name, "") of the arm, then (path, value) of each setting."""
    return [(path, value) for path, _, value in (part.partition("=") for part in arm.split("+"))]


def _joined(parts: Sequence[tuple[str, str]]) -> str:
    return " · ".join(f"{setting_name(path)} {value}" if value else path for path, value in parts)


SHOWN = 8
"""Most seeds that a sentence lists."""


def listed_seeds(seeds: Sequence[Hashable]) -> str:
    """Seeds as words: `seeds 3, 4 and 90 more`."""
    shown = ", ".join(map(str, seeds[:SHOWN]))
    more = f" and {len(seeds) - SHOWN:,} more" if len(seeds) > SHOWN else ""
    return f"seed{'s' if len(seeds) > 1 else ''} {shown}{more}"


MOST_NAMED = 8


def grouped(warnings: Iterable[str]) -> tuple[str, ...]:
    """`pre: a seed diverged.` and `post: a seed diverged.` as `pre and post: a seed diverged.`, in order."""
    arms: dict[str, list[str]] = {}
    for warning in warnings:
        arm, colon, said = warning.partition(": ")
        arms.setdefault(said if colon else warning, []).extend([arm] if colon else [])
    found = []
    for said, names in arms.items():
        if len(names) > MOST_NAMED:
            who = f"{listed(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} others: "
        else:
            who = f"{listed(names)}: " if names else ""
        found.append(who + said)
    return tuple(found)
