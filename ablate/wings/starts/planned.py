"""Sources of arms in plans: other arms' trained runs or checkpoints, as starting weights or teachers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import ceil

from ablate.planning.identity import RunPlan, with_source
from ablate.planning.matching import Matched
from ablate.planning.plan import ArmPlan, Plan
from ablate.study.arms import Arm
from ablate.study.study import Study
from ablate.wings.starts.checkpoints import Checkpoint, CheckpointError
from ablate.wings.starts.keys import START, TEACHER, start_of, teacher_of
from store import Store
from store.documents import JsonObject, RunStart, RunTeacher
from store.documents.study_arm import taught_by
from zoo.spec import ModelSpec


def with_sources(study: Study, plans: Sequence[ArmPlan]) -> list[ArmPlan]:
    """The plans of a study's arms, with the runs and checkpoints that they depend on added to their identities.

    Raises StudyError.
    """
    # Checkpoints first: an arm that others start from may itself start from one.
    plans = [_from_checkpoint(study, arm, plan) for arm, plan in zip(study.arms, plans, strict=True)]
    plans = [_from_arm(arm, plan, plans) for arm, plan in zip(study.arms, plans, strict=True)]
    return [_taught(study, arm, plan, plans) for arm, plan in zip(study.arms, plans, strict=True)]


def _from_checkpoint(study: Study, arm: Arm, planned: ArmPlan) -> ArmPlan:
    """The plan of an arm with the checkpoint that it starts from, if any. Raises StudyError if vocabularies differ."""
    start = start_of(arm)
    if start is None or start.checkpoint is None:
        return planned
    found = Checkpoint.at(start.checkpoint, study.folder)
    if found.spec.vocab_size != planned.spec.vocab_size:
        sizes = f"{found.spec.vocab_size:,} tokens, but the text's tokenizer {planned.spec.vocab_size:,}"
        reason = f"{start.checkpoint} has {sizes}: set vocab_size in the base"
        raise study.error(arm.place("start.checkpoint"), reason)
    known = RunStart(checkpoint=found.digest, pooling=start.pooling, growth=start.growth)
    runs = tuple(RunPlan.of(run.arm, with_source(run.identity, START, known)) for run in planned.runs)
    return replace(planned, runs=runs, checkpoint=start.checkpoint)


def _from_arm(arm: Arm, planned: ArmPlan, plans: Sequence[ArmPlan]) -> ArmPlan:
    """The plan of an arm; if it starts from another arm, each run starts from that arm's run of the same seed."""
    start = start_of(arm)
    if start is None or start.arm is None:
        return planned
    source = next(plan for plan in plans if plan.name == start.arm)
    digests = {run.seed: run.digest for run in source.runs}
    before = ceil(source.tokens / planned.train.tokens)
    known = RunStart(pooling=start.pooling, growth=start.growth, batches_before=before)
    starts = [known.model_copy(update={"run": digests[run.seed]}) for run in planned.runs]
    runs = (
        RunPlan.of(run.arm, with_source(run.identity, START, each))
        for run, each in zip(planned.runs, starts, strict=True)
    )
    return replace(planned, runs=tuple(runs), tokens_before=source.tokens, checkpoint=source.checkpoint)


def read_beside(study: Study, matched: Sequence[Matched]) -> dict[str, ModelSpec]:
    """The teacher's model of each arm that has one. Raises StudyError if vocabularies differ or the budget is in
    seconds."""
    specs = {each.arm.name: each.spec for each in matched}
    found: dict[str, ModelSpec] = {}
    for arm in study.arms:
        if (teaching := teacher_of(arm)) is not None:
            own, place = specs[arm.name].vocab_size, arm.place("teacher")
            path = teaching.checkpoint
            teacher = specs[str(teaching.arm)] if path is None else Checkpoint.at(path, study.folder).spec
            if teacher.vocab_size != own:
                raise study.error(
                    place, f"the teacher's vocabulary has {teacher.vocab_size:,} tokens, but {arm.name}'s {own:,}"
                )
            if study.budget.seconds is not None:
                raise study.error(
                    place, "a budget in seconds does not count the teacher's time: give it in flops or tokens"
                )
            found[arm.name] = teacher
    return found


def _taught(study: Study, arm: Arm, planned: ArmPlan, plans: Sequence[ArmPlan]) -> ArmPlan:
    """The plan of an arm; if it has a teacher, each run has the checkpoint or the arm's run of the same seed."""
    teacher = teacher_of(arm)
    if teacher is None:
        return planned
    path, how = teacher.checkpoint, teacher.model_dump(exclude={"arm", "checkpoint"})
    if path is not None:
        digest = Checkpoint.at(path, study.folder).digest
        teachers = [RunTeacher(checkpoint=digest, **how) for _ in planned.runs]
    else:
        source = next(plan for plan in plans if plan.name == teacher.arm)
        digests = {run.seed: run.digest for run in source.runs}
        teachers = [RunTeacher(run=digests[run.seed], **how) for run in planned.runs]
    runs = (
        RunPlan.of(run.arm, with_source(run.identity, TEACHER, each))
        for run, each in zip(planned.runs, teachers, strict=True)
    )
    return replace(planned, runs=tuple(runs), teacher=path or teacher.arm)


def plan_json(plan: Plan) -> JsonObject:
    """Fields of `ablate plan --json`: none beside those of each arm."""
    return {}


def remarks(study: Study) -> Iterator[str]:
    """Remarks below a plan's table, on teachers."""
    for arm in study.arms:
        if teacher := teacher_of(arm):
            yield f"arm {arm.name}: {taught_by(teacher.arm or str(teacher.checkpoint))}"


def prepare_sources(study: Study, store: Store) -> None:
    """Copy every checkpoint of the study to the store. Raises StudyError."""
    with _named(study):
        for checkpoint in _checkpoints(study):
            checkpoint.copy_to(store)


def receipt(study: Study) -> list[str]:
    """Lines on what a run of the study would use of each checkpoint. Raises StudyError."""
    with _named(study):
        return [line for checkpoint in _checkpoints(study) for line in checkpoint.receipt]


def _checkpoints(study: Study) -> list[Checkpoint]:
    arms = [arm for rung in (*study.smaller, study) for arm in rung.arms]
    paths = dict.fromkeys(path for arm in arms for path in arm.checkpoints)
    return [Checkpoint.at(path, study.folder) for path in paths]


@contextmanager
def _named(study: Study) -> Iterator[None]:
    try:
        yield
    except CheckpointError as error:
        raise study.error("arms", str(error)) from error
