"""lm-eval's tasks on a zoo model: scores, standard errors and samples."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import math
import random
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import lm_eval.api.task
import numpy as np
from lm_eval.evaluator import evaluate as lm_evaluate
from lm_eval.tasks.manager import TaskManager
from lm_eval.utils import handle_non_serializable
from tokenizers import Tokenizer

from evals.lm import ZooLM
from evals.spec import EvalSpec
from evals.stderr import WEIGHTED_METRICS, jackknife_stderr
from zoo.model import Decoder

TASK_FOLDER = Path(__file__).parent / "tasks"
_BOOTSTRAPS = 1000
_ACCURACIES = {"acc", "acc_norm", "acc_bytes", "acc_mutual_info"}


class Evaluation(NamedTuple):
    """`document` is what the store keeps as evals-<digest>.json; `samples` has one record per item and filter."""

    document: dict[str, Any]
    samples: list[dict[str, Any]]


def evaluate(
    model: Decoder,
    tokenizer: Tokenizer,
    documents: Sequence[str],
    spec: EvalSpec,
    *,
    context: int,
    eos: int,
) -> Evaluation:
    """Run `spec.tasks`, which may be none. The same arguments give the same scores.

    documents: held-out texts, from which the tasks that ship with the project make their items.
    context: the largest number of tokens that the model reads at once. eos: the token that ends a document.
    Raises UnknownTaskError for a name that neither the project, `spec.include` nor lm-eval knows.
    """
    if not spec.tasks:
        return Evaluation(_document(spec, {}), [])
    lm = ZooLM(model, tokenizer, eos=eos, context=context, batch=spec.batch, seed=spec.seed)
    with _quiet(), _seeded(spec.seed):
        loaded = load_tasks(spec, documents)
        for task in loaded["tasks"].values():
            if task.get_config("num_fewshot") is None:
                task.set_config(key="num_fewshot", value=0)
            task.set_fewshot_seed(seed=spec.seed)
        results = lm_evaluate(lm, loaded, limit=spec.limit, bootstrap_iters=_BOOTSTRAPS)
    tasks = {name: _scores(name, results, loaded["tasks"].get(name)) for name in results["results"]}
    records = [_record(name, s) for name, rows in results["samples"].items() for s in rows]
    return Evaluation(_document(spec, {name: scores for name, scores in tasks.items() if scores}), records)


def _document(spec: EvalSpec, tasks: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": 1,
        "request": spec.model_dump(mode="json"),
        "lm_eval": version("lm_eval"),
        "tasks": tasks,
    }


class UnknownTaskError(ValueError):
    """A task name that nothing defines."""


def load_tasks(spec: EvalSpec, documents: Sequence[str]) -> Any:
    """lm-eval's TaskDict for `spec.tasks`: names, or paths of task files.

    lm-eval's own folder, which takes seconds to index, is read only when a name is found nowhere else.
    """
    given = {"documents": list(documents), "seed": spec.seed}
    folders: list[str | Path] = [TASK_FOLDER, *spec.include]
    manager = TaskManager(include_path=folders, include_defaults=False, metadata=given)
    if _missing(manager, spec.tasks):
        manager = TaskManager(include_path=folders, metadata=given)
    if missing := _missing(manager, spec.tasks):
        raise UnknownTaskError(f"unknown evaluation tasks: {', '.join(missing)}")
    return manager.load(list(spec.tasks))


def _missing(manager: TaskManager, names: Sequence[str]) -> list[str]:
    return [name for name in names if name not in manager.task_index and not Path(name).is_file()]


def _scores(name: str, results: Any, task: Any) -> dict[str, dict[str, Any]]:
    """{metric: value, standard error, direction, chance level, items} of one task or group.

    A metric of another filter than lm-eval's default is named `metric,filter`, as lm-eval does.
    """
    scores: dict[str, dict[str, Any]] = {}
    row = results["results"][name]
    samples = results["samples"].get(name, [])
    for key, value in row.items():
        metric, _comma, chosen = key.partition(",")
        if not chosen or metric.endswith("_stderr"):
            continue
        items = [s for s in samples if s["filter"] == chosen and metric in s]
        scores[metric if chosen == "none" else key] = {
            "value": _finite(value),
            "stderr": _stderr(metric, row.get(f"{metric}_stderr,{chosen}"), items),
            "higher_is_better": results["higher_is_better"].get(name, {}).get(metric),
            "chance": _chance(metric, task, items),
            "items": len(items),
        }
    return scores


def _stderr(metric: str, found: Any, items: list[dict[str, Any]]) -> float | None:
    """lm-eval's standard error, or, for likelihoods of whole texts, where it has none, one over documents."""
    if metric not in WEIGHTED_METRICS:
        return _finite(found)
    clusters = [item["doc"].get("document", item["doc_id"]) for item in items]
    if len(set(clusters)) < 2:
        clusters = [item["doc_id"] for item in items]
    return _finite(jackknife_stderr(metric, [item[metric] for item in items], clusters))


def _chance(metric: str, task: Any, items: list[dict[str, Any]]) -> float | None:
    """Expected accuracy of guessing; None where the notion does not apply."""
    if metric not in _ACCURACIES or not items or task.OUTPUT_TYPE != "multiple_choice":
        return None
    if task.multiple_target:
        return None
    return float(np.mean([1 / len(task.doc_to_choice(item["doc"])) for item in items]))


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _record(task: str, sample: dict[str, Any]) -> dict[str, Any]:
    """What a later paired test needs of one item: which it is, what the model answered, how that scored.

    `document` is the text that the item is from, where several items may be from one; else null.
    """
    kept = ("doc_id", "doc_hash", "filter", "target", "filtered_resps", *sample["metrics"])
    record = {"task": task, "document": sample["doc"].get("document"), **{key: sample[key] for key in kept}}
    plain = json.loads(json.dumps(record, default=handle_non_serializable))
    return {key: _json_safe(value) for key, value in plain.items()}


def _json_safe(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, list):
        return [_json_safe(v) for v in value]
    return _finite(value) if isinstance(value, float) else value


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """lm-eval logs, prints and draws progress bars: errors are kept, and nothing reaches standard output."""
    logger = logging.getLogger("lm_eval")
    level, bar = logger.level, lm_eval.api.task.tqdm
    logger.setLevel(logging.ERROR)
    lm_eval.api.task.tqdm = functools.partial(bar, disable=True)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        logger.setLevel(level)
        lm_eval.api.task.tqdm = bar


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Some tasks draw from the global generators: they are seeded inside, and as before outside."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
