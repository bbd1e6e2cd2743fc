"""Problems of arms that name other models: sources that do not exist or do not fit, adapters without a start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ablate.data import DataError
from ablate.data.sources import TextSource
from ablate.data.tokenizers._loaded import LocalTokenizer
from ablate.data.tokenizers.bytes import BytesTokenizer, byte_tokenizer
from ablate.data.tokenizers.file import FileTokenizer
from ablate.data.tokenizers.sentencepiece import SentencePieceTokenizer
from ablate.study.arms import TRAIN, Arm, ArmBuilder
from ablate.study.complaints import Problem
from ablate.study.rung_reader import RungReader
from ablate.study.sections import StudySections
from ablate.wings.starts.checkpoints import Checkpoint, CheckpointError
from ablate.wings.starts.keys import START, TEACHER, StartSpec, start_of, teacher_of
from ablate.wings.starts.lora import LoraSpec, check_lora
from zoo.conversion import check_conversion
from zoo.errors import SpecError, did_you_mean
from zoo.spec import ModelSpec

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
        if (teacher := teacher_of(arm)) is None:
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
        theirs = _other_tokenizer(arm, checkpoint, folder)
    except (CheckpointError, DataError) as error:
        return str(error)
    if theirs is None:
        return _misread(arm, checkpoint.spec, path)
    named = f"{{kind: {theirs.kind}, path: {theirs.path}}}"
    return f"{path} has another tokenizer than {arm.name}: set data.tokenizer to {named}"


def _misread(arm: Arm, teacher: ModelSpec, name: str) -> str | None:
    """Why a teacher cannot predict what the student's objective asks; None if it can."""
    try:
        arm.train.objective.check(teacher)
    except SpecError as error:
        return f"{name} cannot teach {arm.name}: {error.reason}"
    return None


def _start_problems(builder: ArmBuilder, arms: Sequence[Arm], folder: Path) -> Iterator[Problem]:
    """Arms whose start does not exist, or has no weights for them. folder: base of relative paths."""
    by_name = {arm.name: arm for arm in arms}
    for arm in arms:
        if (start := start_of(arm)) is None:
            continue
        if start.arm is not None:
            yield from _arm_problems(builder, arm, start, by_name)
        else:
            yield from _checkpoint_problems(builder, arm, start, folder)


def _lora_problems(builder: ArmBuilder, arms: Sequence[Arm]) -> Iterator[Problem]:
    """Adapters without a trained start, for matrices that a model lacks, or with width or depth transfer."""
    for arm in arms:
        lora = arm.train.part
        if not isinstance(lora, LoraSpec):
            continue
        place = next((edit.target for edit in arm.own if edit.path[:2] == (TRAIN, "lora")), (TRAIN, "lora"))
        if start_of(arm) is None:
            reason = f"adapters need trained weights, and {arm.name} has no start: set start.arm or start.checkpoint"
            yield builder.origins.problem(place, reason)
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
            and f"{arm.name} starts from a checkpoint with another tokenizer: leave this out to use {theirs.path}"
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


def _other_tokenizer(arm: Arm, checkpoint: Checkpoint, folder: Path) -> LocalTokenizer | None:
    """The checkpoint's tokenizer if the arm's is another one, which gives token ids other meanings; else None.

    Raises DataError.
    """
    if not isinstance(arm.data, TextSource) or checkpoint.tokenizer is None:
        return None
    kind: type[LocalTokenizer] = FileTokenizer if checkpoint.tokenizer["kind"] == "file" else SentencePieceTokenizer
    own, theirs = arm.data.tokenizer, kind.model_validate(checkpoint.tokenizer)
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
