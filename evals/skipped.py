"""Tasks that an evaluation asked for and skipped. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from store.documents import TaskGroup


def skipped_lines(skipped: Mapping[str, str], groups: Mapping[str, TaskGroup]) -> Iterator[str]:
    """One line for each skipped task, with the reason; several skipped tasks of a group share one line."""
    left = dict(skipped)
    for name, group in sorted(groups.items(), key=lambda item: -len(item[1].missing)):  # the outer before the inner
        missing = [task for task in group.missing if task in left]
        if len(missing) > 1:
            size = len(missing) + len(group.tasks)
            yield f"{name}: {len(missing)} of {size} tasks are skipped; {missing[0]}: {left[missing[0]]}"
            left = {task: reason for task, reason in left.items() if task not in missing}
    yield from (f"{task} is skipped: {reason}" for task, reason in left.items())
