"""lm-eval's tasks on a zoo model: scores, standard errors and samples."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import math
import sys
import tempfile
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, TypeAlias

import lm_eval.api.task
import numpy as np
from lm_eval.api.metrics import acc_all, acc_all_stderr, mean, mean_stderr
from lm_eval.utils import handle_non_serializable
from numpy.typing import NDArray

from evals.found import Found
from evals.harness.answering import add_bits_per_byte, results_of, seeded
from evals.harness.lm import ZooLM
from evals.harness.loading import by_size, load_tasks
from evals.harness.selection import TaskSelection
from store.documents import SampleRecord, Score

Sample: TypeAlias = dict[str, Any]
"""lm-eval's record of one item: the document, the model's answer, and a value for each metric."""
Scores = dict[str, dict[str, Score]]
"""Scores by task, or group of tasks, and metric."""

_ACCURACIES = {"acc", "acc_norm", "acc_bytes", "acc_mutual_info"}


def evaluate_tasks(spec: TaskSelection, lm: ZooLM, documents: Sequence[str]) -> Found:
    """Run tasks on a model. The same arguments give the same scores.

    documents: held-out texts, from which the tasks that ship with the project build their items.
    Raises UnknownTaskError for a name that neither the project, `spec.include` nor lm-eval defines.
    """
    about = {"lm_eval": version("lm_eval")}
    with _quiet(), sources_alone(), seeded(lm.seed):
        loaded = load_tasks(spec, documents, lm.seed)
        if spec.chat_template and not lm.conventions.has_template:
            loaded.skip_all("the model has no chat template")
        results = results_of(loaded, lm, spec) if loaded.tasks else None
        if results is None:
            return Found(about=about, groups=loaded.task_groups(), skipped=loaded.skipped)
        add_bits_per_byte(results, loaded)
    tasks = {name: _scores(name, results, task) for name, task in loaded.tasks.items()}
    tasks |= {name: _group_scores(group, results, tasks) for name, group in loaded.groups.items()}
    return Found(
        scores=tasks,
        items=[_record(name, s) for name, rows in results["samples"].items() for s in rows],
        about=about,
        rows=[{"task": name, "fewshot": task.get_config("num_fewshot")} for name, task in loaded.tasks.items()],
        groups={name: each for name, each in loaded.task_groups().items() if tasks.get(name) or not each.tasks},
        skipped=loaded.skipped,
    )


def _scores(name: str, results: Any, task: Any) -> dict[str, Score]:
    """Scores of one task, by metric.

    A metric with a filter other than lm-eval's default is named `metric,filter`, as in lm-eval.
    """
    scores: dict[str, Score] = {}
    for key, metric, chosen, value in _values(results["results"][name]):
        items = [s for s in results["samples"].get(name, []) if s["filter"] == chosen and metric in s]
        scores[key] = Score(
            value=_finite(value),
            stderr=_stderr(metric, task, items),
            higher_is_better=results["higher_is_better"].get(name, {}).get(metric),
            chance=_chance(metric, task, items),
            items=len(items),
        )
    return scores


def _values(row: Mapping[str, object]) -> Iterator[tuple[str, str, str, object]]:
    """(our name, metric, filter, value) of lm-eval's scores of one task or group."""
    for key, value in row.items():
        metric, _comma, chosen = key.partition(",")
        if chosen and not metric.endswith("_stderr"):
            yield metric if chosen == "none" else key, metric, chosen, value


def _group_scores(group: Any, results: Any, tasks: Scores) -> dict[str, Score]:
    """Scores of a group: lm-eval's mean over its tasks, and the standard error of that mean."""
    scores: dict[str, Score] = {}
    for key, metric, _chosen, value in _values(results["results"].get(group.name, {})):
        parts = [tasks[task.task_name][key] for task in group.get_all_tasks() if key in tasks[task.task_name]]
        weights = [part.items if metric in by_size(group) else 1 for part in parts]
        scores[key] = Score(
            value=_finite(value),
            stderr=_mean_of([part.stderr for part in parts], weights, independent=True),
            higher_is_better=results["higher_is_better"].get(group.name, {}).get(metric),
            chance=_mean_of([part.chance for part in parts], weights),
            items=sum(part.items for part in parts),
        )
    return scores


def _mean_of(values: Sequence[float | None], weights: Sequence[int], independent: bool = False) -> float | None:
    """Σ wᵢ vᵢ / Σ wᵢ or, for standard errors of independent means, √Σ (wᵢ vᵢ)² / Σ wᵢ; None if a value is unknown."""
    products = [w * v for w, v in zip(weights, values, strict=True) if v is not None]
    if len(products) < len(values) or not products:
        return None
    return (math.hypot(*products) if independent else sum(products)) / sum(weights)


def _stderr(metric: str, task: Any, items: list[Sample]) -> float | None:
    """Standard error over items or, for likelihoods of whole texts, over the documents that they are from."""
    if len(items) < 2:
        return None
    values = [item[metric] for item in items]
    if metric not in WEIGHTED_METRICS:
        return _finite(stderr_over_items(task.aggregation().get(metric, mean), values))
    clusters = [_document_of(item) for item in items]
    if None in clusters or len(set(clusters)) < 2:
        clusters = [item["doc_id"] for item in items]
    return _finite(jackknife_stderr(metric, values, clusters))


def _document_of(sample: Sample) -> int | None:
    """Index of the held-out text that an item is from; None for tasks without an integer field `document`."""
    doc = sample["doc"]
    document = doc.get("document") if isinstance(doc, dict) else None
    return document if isinstance(document, int) else None


def _chance(metric: str, task: Any, items: list[Sample]) -> float | None:
    """Expected accuracy of random guessing; None where the notion does not apply."""
    if metric not in _ACCURACIES or not items or task.OUTPUT_TYPE != "multiple_choice" or task.multiple_target:
        return None
    return float(np.mean([1 / len(task.doc_to_choice(item["doc"])) for item in items]))


def _finite(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _record(task: str, sample: Sample) -> SampleRecord:
    """Record of one item for later paired tests: its identity, the model's answer, and its scores."""
    kept = {key: sample[key] for key in ("doc_id", "doc_hash", "filter", "target", "filtered_resps")}
    metrics = {metric: _plain(sample[metric]) for metric in sample["metrics"]}
    plain = {key: _plain(value) for key, value in kept.items()}
    return SampleRecord(task=task, document=_document_of(sample), metrics=metrics, **plain)


def _plain(value: Any) -> Any:
    return _json_safe(json.loads(json.dumps(value, default=handle_non_serializable)))


def _json_safe(value: Any) -> Any:
    """Replace NaN and infinity, which JSON lacks, by null."""
    if isinstance(value, list):
        return [_json_safe(v) for v in value]
    return _finite(value) if isinstance(value, float) else value


@contextlib.contextmanager
def sources_alone() -> Iterator[None]:
    """Compile the code of task files from its sources: a `__pycache__` may hold other code, which the user has not
    allowed."""
    before = sys.pycache_prefix
    with tempfile.TemporaryDirectory() as folder:
        sys.pycache_prefix = folder
        try:
            yield
        finally:
            sys.pycache_prefix = before


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence lm-eval: it logs only errors, draws no progress bars, and prints to standard error."""
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


Array = NDArray[np.float64]

WEIGHTED_METRICS: dict[str, Callable[[Array], Array]] = {
    "bits_per_byte": lambda mean: -mean / np.log(2),
    "byte_perplexity": lambda mean: np.exp(-mean),
    "word_perplexity": lambda mean: np.exp(-mean),
}
"""Metric → function of the mean log-likelihood per unit, Σ log p ÷ Σ units."""


def jackknife_stderr(metric: str, items: Sequence[tuple[float, int]], clusters: Sequence[Hashable]) -> float | None:
    """Delete-one-cluster jackknife: √((g − 1)/g · Σ (θ₍ᵢ₎ − θ̄)²), θ₍ᵢ₎ being the metric without cluster i.

    items: (log-likelihood, units) per text; clusters: the document of each text, since texts from one document are not
    independent. None with fewer than two clusters. Efron & Tibshirani 1993, chapter 11.
    """
    names = list(dict.fromkeys(clusters))
    if len(names) < 2:
        return None
    index = np.array([names.index(cluster) for cluster in clusters])
    log_p, units = np.asarray(items, dtype=np.float64).T
    log_p, units = np.bincount(index, log_p), np.bincount(index, units)
    left_out = (log_p.sum() - log_p) / (units.sum() - units)
    with np.errstate(over="ignore", invalid="ignore"):
        theta = WEIGHTED_METRICS[metric](left_out)
        spread = float(np.square(theta - theta.mean()).sum())
    return float(np.sqrt((len(names) - 1) / len(names) * spread))


RESAMPLES = 200
CLOSED_FORM = {mean: mean_stderr, acc_all: acc_all_stderr}


def stderr_over_items(aggregate: Callable[[list[Any]], Any], values: Sequence[Any]) -> float:
    """Standard error of an aggregate of the items' values: s/√n for a mean, else a bootstrap over items.

    Efron & Tibshirani 1993, chapter 6: 200 resamples are enough for a standard error.
    """
    if aggregate in CLOSED_FORM:
        return float(CLOSED_FORM[aggregate](values))
    draw = np.random.default_rng(0)
    places = draw.integers(len(values), size=(RESAMPLES, len(values)))
    return float(np.std([aggregate([values[i] for i in row]) for row in places.tolist()], ddof=1))
