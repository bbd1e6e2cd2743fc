"""What sections of a study do not go together, each found before anything is planned."""

from __future__ import annotations

from ablate.data import DataError
from ablate.data.sources._synthetic import SyntheticSource
from ablate.data.synthetic import regraded
from ablate.study.study import Study
from evals.costs.spec import NO_CACHE
from evals.harness.known import absent, located, near, stray_data, unknown_tasks
from evals.reading.causal import obstacle
from evals.spec import OF_TEXT, DiagnosticsSpec, EvalSpec


def check(study: Study) -> None:
    """Raises StudyError."""
    _check_data(study)
    _check_tokenizers(study)
    _check_kinds(study)


def _check_data(study: Study) -> None:
    reason = study.data.misfit(study.train.context)
    if reason is not None:
        raise study.error("train.context", reason)
    made = isinstance(study.data, SyntheticSource)
    if made and study.train.objective.kind != "next_token":
        reason = f"{study.data.source} says itself what it asks: {study.train.objective.kind} has no meaning there"
        raise study.error("train.objective", reason)
    absent = "bits_per_byte" if made else "accuracy"
    if study.search is not None and absent in study.search.objectives:
        said = f"{study.data.source} has no bytes" if made else "text has no answers"
        raise study.error("search.objectives", f"{said}: there is no {absent}")


def _check_tokenizers(study: Study) -> None:
    """Step times are measured on one corpus, and tokens of different tokenizers are not one currency."""
    if study.budget.kind != "flops" and study.own_tokenizers:
        reason = f"arms with tokenizers of their own compare at equal flops, not {study.budget.kind}"
        raise study.error(f"budget.{study.budget.kind}", reason)
    if study.own_tokenizers and study.train.objective.kind != "next_token":
        reason = f"{study.train.objective.kind} asks for other text where tokens are others: only next_token compares"
        raise study.error("train.objective", reason)


def _check_kinds(study: Study) -> None:
    """What is evaluated reads and writes from left to right, and what has a cache writes."""
    for arm in study.arms:
        kind = obstacle(arm.model)
        if kind is not None and study.evals is not None:
            raise study.error("evals", f"is for models that only read on; arm {arm.name} {kind}: set evals to null")
        if arm.model.visible == "all" and study.measure is not None and len(study.measure.caches) > 1:
            raise study.error("measure.caches", f"are of none in arm {arm.name}: {NO_CACHE}")


def evaluated(study: Study) -> EvalSpec | None:
    """What is evaluated, with absolute paths: workers run elsewhere."""
    if study.evals is None:
        return None
    if isinstance(study.data, SyntheticSource):
        return _diagnostics(study, study.data, study.evals)
    if study.evals.diagnostics is not None:
        raise study.error("evals.diagnostics", "are for tasks that are made (data.source: mqar), and this is text")
    if study.evals.recall is not None and study.own_tokenizers:
        raise study.error(
            "evals.recall", "arms with tokenizers of their own have other bigrams: no two recall the same"
        )
    spec = located(study.evals, study.folder)
    for where, reason in absent(spec):
        raise study.error(f"evals.{where}", reason)
    for name in unknown_tasks(spec):
        place = spec.tasks.index(name)
        raise study.error(f"evals.tasks.{place}", f"unknown task '{name}'" + near(name))
    for name in stray_data(spec):
        raise study.error(f"evals.data.{name}", "no task of that name is evaluated, and no group of one")
    return spec


def _diagnostics(study: Study, data: SyntheticSource, spec: EvalSpec) -> EvalSpec:
    """What is asked of a task that is made, in place of what is asked of text."""
    given = [
        name
        for name in ("tasks", "include", "data", "fewshot", "limit", *OF_TEXT)
        if name in spec.model_fields_set and getattr(spec, name) not in (None, ())
    ]
    for name in given:
        raise study.error(f"evals.{name}", f"needs held-out text, and {data.source} has none: see evals.diagnostics")
    asked = spec.diagnostics or DiagnosticsSpec()
    try:
        regraded(data, asked.at)
    except DataError as error:
        raise study.error("evals.diagnostics.at", str(error)) from error
    return spec.model_copy(update={"tasks": (), "diagnostics": asked})
