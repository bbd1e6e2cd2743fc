"""Checks that a study's sections are compatible, before anything is planned."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ablate.data.identity import MadeSource
from ablate.study.study import Study
from ablate.training.objectives.next_token import NextToken
from evals.costs.spec import NO_CACHE
from evals.evaluations import evaluations
from evals.spec import EvalSpec, EvaluationError, is_default
from evals.subject import Conditions, HeldOutText, SyntheticTask
from store.extensions import modules_of
from zoo.spec import ModelSpec, too_short


def check(study: Study) -> None:
    """Raise StudyError if sections of the study exclude each other."""
    reason = study.data.misfit(study.train.context)
    if reason is not None:
        raise study.error("train.context", reason)
    made = isinstance(study.data, MadeSource)
    if made and study.train.objective != NextToken():
        reason = f"{study.data.source} defines its own examples: only next_token applies, with documents joined"
        raise study.error("train.objective", reason)
    for wing in modules_of(__name__):
        wing.check(study)
    # Step times are measured on one corpus, and tokens of different tokenizers are not comparable.
    if study.budget.kind != "flops" and study.own_tokenizers:
        why = f"arms with different tokenizers are compared at equal flops, not {study.budget.kind}"
        raise study.error(f"budget.{study.budget.kind}", why)
    if study.own_tokenizers and study.train.objective.kind != "next_token":
        objective = study.train.objective.kind
        why = f"{objective} predicts different text under different tokenizers: only next_token is comparable"
        raise study.error("train.objective", why)
    for arm in study.arms:
        if (reason := too_short(arm.model, arm.train.context)) is not None:
            raise study.error("train.context", f"arm {arm.name} {reason}")
        # Encoders have no cache to compare.
        if arm.model.visible == "all" and study.measure is not None and len(study.measure.caches) > 1:
            raise study.error("measure.caches", f"arm {arm.name}: {NO_CACHE}")


def evaluated(study: Study, models: Mapping[str, ModelSpec] | None = None) -> EvalSpec | None:
    """Evaluations of a study, with absolute paths, as workers run in other folders. models: replaces the study's arms.
    Raises StudyError."""
    if study.evals is None:
        return None
    synthetic = study.data if isinstance(study.data, MadeSource) else None
    models = models or {f"arm {arm.name}": arm.model for arm in study.arms}
    found = conditions(synthetic, study.data.source, models, study.folder, study.own_tokenizers)
    if not study.evals.model_fields_set and not any(is_default(each, found) for each in evaluations().values()):
        return None
    try:
        return study.evals.under(found)
    except EvaluationError as error:
        if error.path:
            raise study.error(f"evals.{error.path}", error.reason) from error
        raise study.error("evals", f"{error.reason}: set evals to null") from error


def conditions(
    synthetic: MadeSource | None, name: str, models: Mapping[str, ModelSpec], folder: Path, own_tokenizers: bool
) -> Conditions:
    """Conditions of evaluations: the models, and their data. synthetic: None for text."""
    if synthetic is None:
        return Conditions(HeldOutText, name, models, folder, own_tokenizers)
    return Conditions(SyntheticTask, name, models, folder, own_tokenizers, synthetic.difficulty_error)
