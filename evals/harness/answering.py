"""Running tasks with lm-eval: tasks that fail are skipped, and the others keep their scores."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from traceback import walk_tb
from typing import Any

import numpy as np
from lm_eval.api.metrics import bits_per_byte
from lm_eval.api.task import Task
from lm_eval.evaluator import evaluate as lm_evaluate

from evals.evaluations._decoding import UnsupportedGenerationError
from evals.harness import lm as adapter
from evals.harness.lm import UnreadableTextError, ZooLM
from evals.harness.loading import Loaded, failure_of
from evals.harness.selection import TaskSelection

OF_A_TASK = (UnsupportedGenerationError, UnreadableTextError)
"""Errors that a task causes in the model's adapter."""


def results_of(loaded: Loaded, lm: ZooLM, spec: TaskSelection) -> Any:
    """lm-eval's results of all tasks that can run; None if there are none. The others are skipped in `loaded`.

    All tasks share batches. Only if one fails, each is run alone to find out which. The model's answers are cached
    meanwhile, so that no question is computed twice.
    """
    with _keeping_answers(lm):
        try:
            return _evaluate(lm, loaded, spec)
        except Exception as error:
            if not _is_a_tasks(error):
                raise
        for name, task in list(loaded.tasks.items()):
            try:
                with seeded(lm.seed):
                    _evaluate(lm, Loaded(tasks={name: task}), spec)
            except Exception as error:
                if not _is_a_tasks(error):
                    raise
                known = isinstance(error, OF_A_TASK)
                loaded.skip(name, str(error) if known else failure_of(error))
        with seeded(lm.seed):
            return _evaluate(lm, loaded, spec) if loaded.tasks else None


def _evaluate(lm: ZooLM, loaded: Loaded, spec: TaskSelection) -> Any:
    for task in loaded.tasks.values():
        # lm-eval's rule: a task that fixes the number at 0 keeps it, since its items make no sense after examples
        own = task.get_config("num_fewshot")
        if own is None or (spec.fewshot is not None and own != 0):
            task.set_config(key="num_fewshot", value=spec.fewshot or 0)
        task.set_fewshot_seed(seed=lm.seed)
    wanted = {"tasks": loaded.tasks, "groups": loaded.groups}
    chat = {"apply_chat_template": True, "fewshot_as_multiturn": True} if spec.chat_template else {}
    return lm_evaluate(lm, wanted, limit=spec.limit, bootstrap_iters=0, **chat)


def _is_a_tasks(error: Exception) -> bool:
    """Whether a task caused an error, rather than the model adapter or the machine."""
    if isinstance(error, OF_A_TASK):
        return True
    if isinstance(error, MemoryError):
        return False
    return all(frame.f_code.co_filename != adapter.__file__ for frame, _ in walk_tb(error.__traceback__))


@contextmanager
def _keeping_answers(lm: ZooLM) -> Iterator[None]:
    if lm.answers is not None:
        yield
        return
    with TemporaryDirectory() as folder:
        lm.answers = Path(folder) / "answers.db"
        try:
            yield
        finally:
            lm.answers = None


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators, from which some tasks draw, in the block; restore their state afterwards."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


# Bits per byte of the right answer: a score of every multiple-choice task, smooth where accuracy is at chance.
#
# −Σ log₂ p(answer | question) / Σ bytes of the answers, over items. Heineman et al. 2025, arXiv:2508.13144, find that
# scores of this kind tell models apart more reliably than accuracy does.

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
