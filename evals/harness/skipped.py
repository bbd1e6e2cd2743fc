"""What an evaluation asked for and did not get. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def skipped_lines(document: dict[str, Any]) -> Iterator[str]:
    """One line for each task of an evals document that has no score, but for those of a group one together."""
    left = dict(document.get("skipped", {}))
    groups = document.get("groups", {}).items()
    for name, group in sorted(groups, key=lambda item: -len(item[1]["missing"])):  # the outer group before the inner
        missing = [task for task in group["missing"] if task in left]
        if len(missing) > 1:
            size = len(missing) + len(group["tasks"])
            yield f"{name}: {len(missing)} of its {size} tasks are skipped, {missing[0]} since {left[missing[0]]}"
            left = {task: reason for task, reason in left.items() if task not in missing}
    yield from (f"{task} is skipped: {reason}" for task, reason in left.items())
