"""Sources of arms: other arms' trained runs or checkpoints, as starting weights or teachers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from ablate.checkpoints import Checkpoint
from ablate.planning.identity import RunPlan, with_start, with_teacher
from ablate.planning.matching import Matched
from ablate.planning.plan import ArmPlan
from ablate.study.arms import Arm
from ablate.study.study import Study
from store.documents import RunStart, RunTeacher
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
    if arm.start is None or arm.start.checkpoint is None:
        return planned
    found = Checkpoint.at(arm.start.checkpoint, study.folder)
    if found.spec.vocab_size != planned.spec.vocab_size:
        sizes = f"{found.spec.vocab_size:,} tokens, but the text's tokenizer {planned.spec.vocab_size:,}"
        reason = f"{arm.start.checkpoint} has {sizes}: set vocab_size in the base"
        raise study.error(arm.place("start.checkpoint"), reason)
    start = RunStart(checkpoint=found.digest, pooling=arm.start.pooling, growth=arm.start.growth)
    runs = tuple(RunPlan.of(run.arm, with_start(run.identity, start)) for run in planned.runs)
    return replace(planned, runs=runs, checkpoint=arm.start.checkpoint)


def _from_arm(arm: Arm, planned: ArmPlan, plans: Sequence[ArmPlan]) -> ArmPlan:
    """The plan of an arm; if it starts from another arm, each run starts from that arm's run of the same seed."""
    if arm.start is None or arm.start.arm is None:
        return planned
    source = next(plan for plan in plans if plan.name == arm.start.arm)
    digests = {run.seed: run.digest for run in source.runs}
    before = ceil(source.tokens / planned.train.tokens)
    start = RunStart(pooling=arm.start.pooling, growth=arm.start.growth, batches_before=before)
    starts = [start.model_copy(update={"run": digests[run.seed]}) for run in planned.runs]
    runs = [
        RunPlan.of(run.arm, with_start(run.identity, start)) for run, start in zip(planned.runs, starts, strict=True)
    ]
    return replace(planned, runs=tuple(runs), tokens_before=source.tokens, checkpoint=source.checkpoint)


def teacher_models(study: Study, matched: Sequence[Matched]) -> dict[str, ModelSpec]:
    """The teacher's model of each arm that has one. Raises StudyError if vocabularies differ or the budget is in
    seconds."""
    specs = {each.arm.name: each.spec for each in matched}
    found: dict[str, ModelSpec] = {}
    for arm in study.arms:
        if arm.teacher is not None:
            own, place = specs[arm.name].vocab_size, arm.place("teacher")
            path = arm.teacher.checkpoint
            teacher = specs[str(arm.teacher.arm)] if path is None else Checkpoint.at(path, study.folder).spec
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
    if arm.teacher is None:
        return planned
    path, how = arm.teacher.checkpoint, arm.teacher.model_dump(exclude={"arm", "checkpoint"})
    if path is not None:
        digest = Checkpoint.at(path, study.folder).digest
        teachers = [RunTeacher(checkpoint=digest, **how) for _ in planned.runs]
    else:
        source = next(plan for plan in plans if plan.name == arm.teacher.arm)
        digests = {run.seed: run.digest for run in source.runs}
        teachers = [RunTeacher(run=digests[run.seed], **how) for run in planned.runs]
    runs = [
        RunPlan.of(run.arm, with_teacher(run.identity, each)) for run, each in zip(planned.runs, teachers, strict=True)
    ]
    return replace(planned, runs=tuple(runs), teacher=path or arm.teacher.arm)
