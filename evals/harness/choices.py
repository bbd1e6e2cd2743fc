"""Bits per byte of the right answer: a score of every multiple-choice task, smooth where accuracy is at chance.

−Σ log₂ p(answer | question) / Σ bytes of the answers, over items. Heineman et al. 2025, arXiv:2508.13144, find that
scores of this kind tell models apart more reliably than accuracy does.
"""

from __future__ import annotations

from typing import Any

from lm_eval.api.metrics import bits_per_byte
from lm_eval.api.task import Task

from evals.harness.loading import Loaded

METRIC = "bits_per_byte"
KEY = f"{METRIC},none"


def add_bits_per_byte(results: Any, loaded: Loaded) -> None:
    """Add the metric to lm-eval's results, as if each multiple-choice task had requested it."""
    for name, task in loaded.tasks.items():
        if task.OUTPUT_TYPE == "multiple_choice" and KEY not in results["results"][name]:
            _add(results, name, task)
    for group in loaded.groups.values():
        # a group's value is the mean over its tasks, if all have one and the group has scores at all
        found = results["results"].get(group.name, {})
        parts = [results["results"][task.task_name].get(KEY) for task in group.get_all_tasks()]
        if any("," in key for key in found) and KEY not in found and None not in parts:
            found[KEY] = sum(parts) / len(parts)
            results["higher_is_better"].setdefault(group.name, {})[METRIC] = False


def _add(results: Any, name: str, task: Task) -> None:
    values = []
    for sample in results["samples"].get(name, []):
        if sample["filter"] != "none":
            continue
        # the right choice as lm-eval determines it, if there is exactly one
        right, choices = sample["target"], task.doc_to_choice(sample["doc"])
        if isinstance(right, str) and right in choices:
            right = choices.index(right)
        if isinstance(right, int) and 0 <= right < len(choices):
            log_p, _is_likeliest = sample["filtered_resps"][right]
            _context, answer = sample["arguments"][right]
            sample[METRIC] = log_p, len(answer.encode())  # of the right answer, with the space before it
            sample["metrics"] = [*sample["metrics"], METRIC]
            values.append(sample[METRIC])
    if values:
        results["results"][name][KEY] = bits_per_byte(values)
        results["higher_is_better"].setdefault(name, {})[METRIC] = False
