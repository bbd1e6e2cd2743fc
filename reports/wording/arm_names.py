"""Names of arms and settings as they are read."""

from __future__ import annotations

from collections.abc import Sequence


def spelled(arm: str) -> str:
    """A name with the settings of a grid's cell without their paths: `base · kv heads 2 · window 32`."""
    return _joined(_parts(arm))


def brief(arms: Sequence[str]) -> dict[str, str]:
    """The same of each arm, without what begins the names of all: cells of one arm are told by their settings alone."""
    parts = {arm: _parts(arm) for arm in arms}
    is_grid_of_one = len(arms) > 1 and len({first for first, *_ in parts.values()}) == 1
    return {arm: _joined(found[1:] if is_grid_of_one and len(found) > 1 else found) for arm, found in parts.items()}


def setting_name(path: str) -> str:
    """`block.mixer.kv_heads` → `kv heads`; a symbol such as `d_model` stays."""
    tail = path.rpartition(".")[2]
    return tail if tail[1:2] == "_" else tail.replace("_", " ")


def _parts(arm: str) -> list[tuple[str, str]]:
    """The arm, then settings with values; names without a value have an empty one."""
    return [(path, value) for path, _, value in (part.partition("=") for part in arm.split("+"))]


def _joined(parts: Sequence[tuple[str, str]]) -> str:
    return " · ".join(f"{setting_name(path)} {value}" if value else path for path, value in parts)
