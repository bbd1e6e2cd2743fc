"""Sources of arms, as starting weights or teachers: what is wrong with them in a study, and the runs of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import cast

from ablate.data import DataError
from ablate.data.sources import TextSource
from ablate.data.tokenizers._loaded import LoadedTokenizer
from ablate.data.tokenizers.bytes import BytesTokenizer, byte_tokenizer
from ablate.planning.identity import RunPlan, with_source
from ablate.planning.make_plan import Matched
from ablate.planning.plan import ArmPlan, Plan
from ablate.study.arms import TRAIN, Arm, ArmBuilder
from ablate.study.complaints import Problem
from ablate.study.rung_reader import RungReader
from ablate.study.sections import StudySections
from ablate.study.study import Study
from ablate.wings.starts.checkpoints import Checkpoint, CheckpointError
from ablate.wings.starts.keys import START, TEACHER, StartSpec, TeacherSpec
from ablate.wings.starts.lora import LoraSpec, check_lora
from store import Store
from store.documents import JsonObject, RunStart, RunTeacher
from store.documents.study_arm import taught_by
from zoo.conversion import check_conversion
from zoo.errors import SpecError, did_you_mean
from zoo.settings.axis import variants
from zoo.spec import ModelSpec, too_short

DEPENDS = "starts from, or is taught by, another arm"


def problems(
    reader: RungReader, builder: ArmBuilder, sections: StudySections, arms: Sequence[Arm], factors: Sequence[str]
) -> Iterator[Problem]:
    """Problems of the arms' adapters, starts and teachers."""
    yield from _lora_problems(builder, arms)
    for found in (_start_problems, _teacher_problems):
        yield from found(builder, arms, reader.written.folder)


def _teacher_problems(builder: ArmBuilder, arms: Sequence[Arm], folder: Path) -> Iterator[Problem]:
    """Teachers that do not exist, depend on another arm, or cannot read what their students read."""
    by_name = {arm.name: arm for arm in arms}
    for arm in arms:
        if (teacher := arm.source(TeacherSpec)) is None:
            continue
        place, reason = (*arm.target, TEACHER), None
        if teacher.arm is None:
            reason = _teacher_reason(arm, str(teacher.checkpoint), folder)
        elif (source := by_name.get(teacher.arm)) is None:
            reason = f"unknown arm '{teacher.arm}'" + did_you_mean(teacher.arm, by_name)
        elif source.sources:
            reason = f"cannot be taught by {source.name}, which itself {DEPENDS}"
        elif source.data != arm.data:
            reason = f"cannot be taught by {source.name}: their tokenizers differ"
        else:
            reason = _misread(arm, source.model, source.name)
        if reason is not None:
            yield builder.origins.problem(place, reason)


def _teacher_reason(arm: Arm, path: str, folder: Path) -> str | None:
    """Why a checkpoint cannot teach an arm; None if it can."""
    try:
        checkpoint = Checkpoint.at(path, folder)
        theirs, spec = _other_tokenizer(arm, checkpoint, folder), checkpoint.spec
    except (CheckpointError, DataError) as error:
        return str(error)
    if theirs is None:
        return _misread(arm, spec, path)
    named = f"{{kind: {theirs.kind}, path: {theirs.named}}}"
    return f"{path} has another tokenizer than {arm.name}: set data.tokenizer to {named}"


def _misread(arm: Arm, teacher: ModelSpec, name: str) -> str | None:
    """Why a teacher cannot predict what the student's objective asks; None if it can."""
    try:
        arm.train.objective.check(teacher)
    except SpecError as error:
        reason: str | None = error.reason
    else:
        reason = too_short(teacher, arm.train.context)
    return reason and f"{name} cannot teach {arm.name}: {reason}"


def _start_problems(builder: ArmBuilder, arms: Sequence[Arm], folder: Path) -> Iterator[Problem]:
    """Arms whose start does not exist, or has no weights for them. folder: base of relative paths."""
    by_name = {arm.name: arm for arm in arms}
    for arm in arms:
        if (start := arm.source(StartSpec)) is None:
            continue
        if start.arm is not None:
            yield from _arm_problems(builder, arm, start, by_name)
        else:
            yield from _checkpoint_problems(builder, arm, start, folder)


def _lora_problems(builder: ArmBuilder, arms: Sequence[Arm]) -> Iterator[Problem]:
    """Adapters for matrices that a model lacks, or with width or depth transfer."""
    for arm in arms:
        lora = arm.train.part
        if not isinstance(lora, LoraSpec):
            continue
        place = next((edit.target for edit in arm.own if edit.path[:2] == (TRAIN, "lora")), (TRAIN, "lora"))
        for name in ("width_transfer", "depth_transfer"):
            if getattr(arm.train, name) is not None:
                reason = f"cannot be combined with {name}: no rule is known for the learning rates of adapters"
                yield builder.origins.problem(place, reason)
        try:
            check_lora(arm.model, lora)
        except SpecError as error:
            yield builder.origins.problem(place, error.reason)


def _arm_problems(builder: ArmBuilder, arm: Arm, start: StartSpec, by_name: Mapping[str, Arm]) -> Iterator[Problem]:
    """Problems of an arm that starts from another arm."""
    name = str(start.arm)
    place, source = (*arm.target, START, "arm"), by_name.get(name)
    if source is None:
        yield builder.origins.problem(place, f"unknown arm '{name}'" + did_you_mean(name, by_name))
    elif source.sources:
        yield builder.origins.problem(place, f"cannot start from {source.name}, which itself {DEPENDS}")
    else:
        if source.data != arm.data:
            yield builder.origins.problem(arm.target, f"cannot start from {source.name}: their tokenizers differ")
        yield from _conversion_problems(builder, arm, start, source.model, source.name)


def _checkpoint_problems(builder: ArmBuilder, arm: Arm, start: StartSpec, folder: Path) -> Iterator[Problem]:
    own = any(edit.path[:1] == (START,) for edit in arm.own)
    place = (*arm.target, START, "checkpoint") if own else ("base", "checkpoint")
    try:
        checkpoint = Checkpoint.at(str(start.checkpoint), folder)
        source = checkpoint.spec
    except CheckpointError as error:
        yield builder.origins.problem(place, str(error))
        return
    try:
        theirs = _other_tokenizer(arm, checkpoint, folder)
        reason = (
            theirs
            and f"{arm.name} starts from a checkpoint with another tokenizer: leave this out to use {theirs.named}"
        )
    except DataError as error:
        reason = str(error)
    if reason:
        yield builder.origins.problem(("data", "tokenizer"), reason)
    if (
        checkpoint.tokenizer is None
        and isinstance(arm.data, TextSource)
        and "tokenizer" not in arm.data.model_fields_set
    ):
        reason = f"{checkpoint.without_tokenizer}: name its tokenizer in data.tokenizer"
        yield builder.origins.problem(place, reason)
    # A preset's vocabulary size follows from the data, and is compared once that is known.
    model = arm.model.edit({"vocab_size": source.vocab_size})
    yield from _conversion_problems(builder, replace(arm, model=model), start, source, str(start.checkpoint))


def _other_tokenizer(arm: Arm, checkpoint: Checkpoint, folder: Path) -> LoadedTokenizer | None:
    """The checkpoint's tokenizer if the arm's is another one, which gives token ids other meanings; else None.

    Raises DataError.
    """
    if not isinstance(arm.data, TextSource) or checkpoint.tokenizer is None:
        return None
    kind = variants("ablate.data.tokenizers")[str(checkpoint.tokenizer["kind"])]
    own, theirs = arm.data.tokenizer, cast(LoadedTokenizer, kind.model_validate(checkpoint.tokenizer))
    if isinstance(own, BytesTokenizer):  # has no file to compare
        same = theirs.loaded(folder).to_str() == byte_tokenizer().to_str()
    else:
        same = own.identity(folder).get("content") == theirs.identity(folder)["content"]
    return None if same else theirs


def _conversion_problems(
    builder: ArmBuilder, arm: Arm, start: StartSpec, source: ModelSpec, name: str
) -> Iterator[Problem]:
    try:
        check_conversion(source, arm.model, start.growth)
    except SpecError as error:
        yield builder.origins.problem(arm.target, f"cannot start from {name}: {error}")


# Plans: other arms' trained runs or checkpoints, added to the identities of runs.


def with_sources(study: Study, plans: Sequence[ArmPlan]) -> Sequence[ArmPlan]:
    """The plans of a study's arms, with the runs and checkpoints that they depend on added to their identities.

    Raises StudyError.
    """
    # Checkpoints first: an arm that others start from may itself start from one.
    for added in (_from_checkpoint, _from_arm, _taught):
        plans = [added(study, arm, plan, plans) for arm, plan in zip(study.arms, plans, strict=True)]
    return plans


def _from_checkpoint(study: Study, arm: Arm, planned: ArmPlan, plans: Sequence[ArmPlan]) -> ArmPlan:
    """The plan of an arm with the checkpoint that it starts from, if any. Raises StudyError if vocabularies differ."""
    start = arm.source(StartSpec)
    if start is None or start.checkpoint is None:
        return planned
    found = Checkpoint.at(start.checkpoint, study.folder)
    if found.spec.vocab_size != planned.spec.vocab_size:
        sizes = f"{found.spec.vocab_size:,} tokens, but the text's tokenizer {planned.spec.vocab_size:,}"
        reason = f"{start.checkpoint} has {sizes}: set vocab_size in the base"
        raise study.error(arm.place("start.checkpoint"), reason)
    known = partial(RunStart, pooling=start.pooling, growth=start.growth)
    return replace(planned, runs=_joined(planned, START, known, found), checkpoint=start.checkpoint)


def _from_arm(study: Study, arm: Arm, planned: ArmPlan, plans: Sequence[ArmPlan]) -> ArmPlan:
    """The plan of an arm; if it starts from another arm, each run starts from that arm's run of the same seed."""
    start = arm.source(StartSpec)
    if start is None or start.arm is None:
        return planned
    source = next(plan for plan in plans if plan.name == start.arm)
    before = ceil(source.tokens / planned.train.tokens)
    known = partial(RunStart, pooling=start.pooling, growth=start.growth, batches_before=before)
    runs = _joined(planned, START, known, source)
    return replace(planned, runs=runs, tokens_before=source.tokens, checkpoint=source.checkpoint)


def _taught(study: Study, arm: Arm, planned: ArmPlan, plans: Sequence[ArmPlan]) -> ArmPlan:
    """The plan of an arm; if it has a teacher, each run has the checkpoint or the arm's run of the same seed."""
    teacher = arm.source(TeacherSpec)
    if teacher is None:
        return planned
    known = partial(RunTeacher, **teacher.model_dump(exclude={"arm", "checkpoint"}))
    if teacher.checkpoint is not None:
        source: ArmPlan | Checkpoint = Checkpoint.at(teacher.checkpoint, study.folder)
    else:
        source = next(plan for plan in plans if plan.name == teacher.arm)
    return replace(planned, runs=_joined(planned, TEACHER, known, source), teacher=teacher.checkpoint or teacher.arm)


def _joined(
    planned: ArmPlan, section: str, known: Callable[..., RunStart | RunTeacher], source: ArmPlan | Checkpoint
) -> tuple[RunPlan, ...]:
    """The runs of a plan, each with the checkpoint, or the other arm's run of the same seed. known: all else of it."""
    if isinstance(source, Checkpoint):
        found = [known(checkpoint=source.digest)] * len(planned.runs)
    else:
        digests = {run.seed: run.digest for run in source.runs}
        found = [known(run=digests[run.seed]) for run in planned.runs]
    pairs = zip(planned.runs, found, strict=True)
    return tuple(RunPlan.of(run.arm, with_source(run.identity, section, each)) for run, each in pairs)


def read_beside(study: Study, matched: Sequence[Matched]) -> dict[str, ModelSpec]:
    """The teacher's model of each arm that has one. Raises StudyError if vocabularies differ or the budget is in
    seconds."""
    specs = {each.arm.name: each.spec for each in matched}
    found: dict[str, ModelSpec] = {}
    for arm in study.arms:
        if (teaching := arm.source(TeacherSpec)) is None:
            continue
        own, path = specs[arm.name].vocab_size, teaching.checkpoint
        teacher = specs[str(teaching.arm)] if path is None else Checkpoint.at(path, study.folder).spec
        reason = None
        if teacher.vocab_size != own:
            reason = f"the teacher's vocabulary has {teacher.vocab_size:,} tokens, but {arm.name}'s {own:,}"
        elif study.budget.seconds is not None:
            reason = "a budget in seconds does not count the teacher's time: give it in flops or tokens"
        if reason is not None:
            raise study.error(arm.place(TEACHER), reason)
        found[arm.name] = teacher
    return found


def plan_json(plan: Plan) -> JsonObject:
    """Fields of `ablate plan --json`: none beside those of each arm."""
    return {}


def remarks(study: Study) -> Iterator[str]:
    """Remarks below a plan's table, on teachers."""
    for arm in study.arms:
        if teacher := arm.source(TeacherSpec):
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
