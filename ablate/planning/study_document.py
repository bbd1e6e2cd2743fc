"""Convert a plan to the study document in the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType

from pydantic_core import to_jsonable_python

from ablate.planning.campaign import CampaignOutcome
from ablate.planning.foresight import is_pilot
from ablate.planning.identity import run_identity, without_rate
from ablate.planning.plan import ArmPlan, Plan
from ablate.study.reading import next_scale
from ablate.study.sections import Budget
from ablate.study.study import Study
from ablate.training.objectives.next_token import NextToken
from evals.costs.timed_passes import convention
from store import Store
from store.documents import (
    CacheBytes,
    SpentBudget,
    StudyArm,
    StudyContrast,
    StudyDocument,
    StudyObjective,
    StudyRates,
    StudyRun,
    StudyRung,
    TextMeta,
)
from store.documents.study_arm import undertrained
from store.documents.tuning import RATE
from store.extensions import modules_of
from zoo.settings.identity import digest_of
from zoo.settings.registry import plugin_files


def study_document(outcome: CampaignOutcome, created: datetime | None = None) -> StudyDocument:
    """Document of a planned study."""
    plan = outcome.plan
    study = plan.study
    arms = tuple(study_arm(arm) for arm in plan.arms)
    now = created or datetime.now(UTC)
    # How each arm that is not a causal decoder defines its context.
    found = (convention(arm.spec) for arm in plan.arms)
    conventions = tuple(dict.fromkeys(sentence for sentence in found if sentence is not None))
    objective = study.train.objective
    document = StudyDocument(
        name=study.name,
        scale=study.scale,
        path=str(study.path.resolve()) if study.path else None,
        question=study.question,
        citation=study.source,
        source=study.text,
        next_scale=next_scale(study),
        scale_source=study.shipped.text if study.shipped else "",
        sets=to_jsonable_python(study.written.edits),
        plugin_files=tuple(map(str, plugin_files())),
        baseline=study.baseline,
        budget=spent_budget(study.budget),
        matched=study.budget.matched,
        contrasts=tuple(StudyContrast(arm=arm, other=other) for arm, other in study.contrasts),
        caveats=study.caveats,
        margin=study.sections.margin,
        pilot=is_pilot(plan),
        per="byte" if study.own_tokenizers else "token" if objective.kind == "next_token" else "target",
        objective=None if objective == NextToken() else StudyObjective(kind=str(objective), counts=objective.counts),
        conventions=conventions,
        created=now.isoformat(timespec="seconds"),
        arms=arms,
        measure=plan.measure_digest,
        evals=plan.evals_digest,
        looks=outcome.looks,
        rates=study_rates(study),
        tuning=outcome.rungs[-1].tunings,
        ladder=tuple(
            StudyRung(
                name=str(rung.plan.study.rung),
                axis=rung.axis,
                arms=tuple(study_arm(arm) for arm in rung.plan.arms),
                tuning=rung.tunings,
            )
            for rung in outcome.rungs
            if len(outcome.rungs) > 1
        ),
    )
    for wing in modules_of(__name__):
        document = document.model_copy(update=wing.fields(study, document))
    return document


def spent_budget(budget: Budget) -> SpentBudget:
    return SpentBudget(**budget.model_dump(include=set(SpentBudget.model_fields)))


def study_rates(study: Study) -> StudyRates:
    """Origin of the arms' learning rates."""
    if study.carried is not None:
        return StudyRates(how="carried", where=study.carried.carried)
    is_tuned = study.tune is not None and RATE in study.tune.paths
    return StudyRates(how="tuned" if is_tuned else "written", where=None)


def study_arm(arm: ArmPlan) -> StudyArm:
    """An arm in the study's document."""
    found = run_identity(arm.runs[0].identity, arm.spec, arm.train)
    return StudyArm(
        name=arm.name,
        edits=to_jsonable_python(arm.edits),
        cell=to_jsonable_python(arm.cell),
        tuned=to_jsonable_python(arm.tuned),
        matching=arm.matching,
        parameters=arm.parameters,
        parameters_embedding=arm.parameters_embedding,
        parameters_head=arm.cost.params_head,
        flops_per_token=arm.flops_per_token,
        tokens=arm.tokens,
        steps=arm.steps,
        tokens_before=arm.tokens_before,
        checkpoint=arm.checkpoint,
        teacher=arm.teacher,
        kv_bytes_per_token=arm.kv_bytes_per_token,
        seconds=arm.seconds,
        calibration=arm.step_time.calibration if arm.step_time else None,
        step_time_error=arm.step_time.error if arm.step_time else None,
        step_time_processes=arm.step_time.processes if arm.step_time else None,
        data=arm.identity.digest,
        cache_bytes=tuple(CacheBytes(context=context, bytes=size) for context, size in arm.cache_bytes),
        differs=arm.differs,
        identity=digest_of(found),
        identity_at_any_rate=digest_of(without_rate(found)),
        runs=tuple(StudyRun(digest=run.digest, seed=run.seed) for run in arm.runs),
    )


# Training length of arms, and reference losses of their text, for plan, terminal and report.

Corpora = Mapping[str, TextMeta]
"""Prepared text by its digest."""
NO_CORPORA: Corpora = MappingProxyType({})
MANY_EPOCHS = 4
"""Up to this many epochs, repeated text is worth nearly as much as new text (Muennighoff et al. 2023,
arXiv:2305.16264)."""


def prepared(store: Store, plan: Plan) -> Corpora:
    """Text corpora of a plan that are prepared in the store."""
    folders = {arm.identity.digest: store.data(arm.identity.digest) for arm in plan.arms}
    found = {digest: folder.read() for digest, folder in folders.items() if folder.path.is_dir()}
    return {digest: meta for digest, meta in found.items() if isinstance(meta, TextMeta)}


def epochs(arm: ArmPlan, corpora: Corpora) -> float | None:
    """Number of epochs in a run; None if the corpus is not prepared, or not text."""
    meta = corpora.get(arm.identity.digest)
    return None if meta is None else arm.tokens / meta.tokens.train


def length_lines(plan: Plan, corpora: Corpora) -> Iterator[str]:
    """Warnings of arms that train too briefly, never end their warm-up or repeat their text too often, and reference
    losses per corpus."""
    if found := undertrained({arm.name: arm.length for arm in plan.arms}):
        yield found
    warming = [arm for arm in plan.arms if arm.train.warmup_steps(arm.steps) == arm.steps]
    if warming:
        names = ", ".join(arm.name for arm in warming) if len(warming) < len(plan.arms) else "all arms"
        yield f"warm-up takes every step of {names}: no rate reaches its peak"
    # A line for each corpus that an arm repeats too often.
    for digest, corpus in corpora.items():
        arms = [arm for arm in plan.arms if arm.identity.digest == digest]
        most = max((epochs(arm, corpora) or 0.0 for arm in arms), default=0.0)
        if most > MANY_EPOCHS:
            size = f"{corpus.tokens.train:,} training tokens up to {most:.3g} times"
            yield f"repeated: runs read {size}; beyond about {MANY_EPOCHS}, repeated text teaches less than new text"
    if plan.study.train.objective.kind == "next_token":
        for meta in corpora.values():
            yield meta.references.sentence
