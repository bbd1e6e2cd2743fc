"""Bits per byte of the right answer: a score of every task with choices, smooth where accuracy is at chance.

−Σ log₂ p(answer | question) / Σ bytes of the answers, over items. Heineman et al. 2025, arXiv:2508.13144, find that
scores of this kind tell models apart more reliably than accuracy does.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from lm_eval.api.metrics import bits_per_byte
from lm_eval.api.task import Task

from evals.harness.loading import Loaded

METRIC = "bits_per_byte"
KEY = f"{METRIC},none"

Sample: TypeAlias = dict[str, Any]
"""Record of one question, as lm-eval logs it."""


def add_bits_per_byte(results: Any, loaded: Loaded) -> None:
    """Enter it in lm-eval's results, as if each task with choices had asked for it."""
    for name, task in loaded.tasks.items():
        if task.OUTPUT_TYPE == "multiple_choice" and KEY not in results["results"][name]:
            _add(results, name, task)
    for group in loaded.groups.values():
        # a group's is the mean of its tasks', where all have one and the group has scores at all
        found = results["results"].get(group.name, {})
        parts = [results["results"][task.task_name].get(KEY) for task in group.get_all_tasks()]
        if any("," in key for key in found) and KEY not in found and None not in parts:
            found[KEY] = sum(parts) / len(parts)
            results["higher_is_better"].setdefault(group.name, {})[METRIC] = False


def _add(results: Any, name: str, task: Task) -> None:
    values = []
    for sample in results["samples"].get(name, []):
        right = _right(task, sample) if sample["filter"] == "none" else None
        if right is not None:
            log_p, _is_likeliest = sample["filtered_resps"][right]
            _context, answer = sample["arguments"][right]
            sample[METRIC] = log_p, len(answer.encode())  # of the right answer, with the space before it
            sample["metrics"] = [*sample["metrics"], METRIC]
            values.append(sample[METRIC])
    if values:
        results["results"][name][KEY] = bits_per_byte(values)
        results["higher_is_better"].setdefault(name, {})[METRIC] = False


def _right(task: Task, sample: Sample) -> int | None:
    """Place of the right choice, as lm-eval finds it; None where there are several, or none."""
    target = sample["target"]
    choices = task.doc_to_choice(sample["doc"])
    if isinstance(target, str) and target in choices:
        target = choices.index(target)
    return target if isinstance(target, int) and 0 <= target < len(choices) else None
