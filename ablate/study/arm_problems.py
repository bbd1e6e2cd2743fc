"""Problems between parts of a study that are each valid: tuning, starts, teachers, adapters and claims of its arms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ablate.checkpoints import Checkpoint, CheckpointError
from ablate.data import DataError
from ablate.data.sources import TextSource
from ablate.data.tokenizers._loaded import LocalTokenizer
from ablate.data.tokenizers.bytes import BytesTokenizer, byte_tokenizer
from ablate.data.tokenizers.file import FileTokenizer
from ablate.data.tokenizers.sentencepiece import SentencePieceTokenizer
from ablate.study.arms import DATA, START, TEACHER, TRAIN, Arm, ArmBuilder, tuning_edit
from ablate.study.complaints import Problem, StudyError
from ablate.study.layers import Origins, common_length
from ablate.study.sections import StartSpec, StudySections
from ablate.study.tune_spec import TuneSpec
from ablate.training.lora import check_lora
from store.documents import Caveat
from zoo.conversion import check_conversion
from zoo.errors import SpecError, did_you_mean
from zoo.spec import ModelSpec

REMEDY = "set `tune: off` if learning rates are part of the question, `tune: carried` if they were tuned earlier"

DEPENDS = "starts from, or is taught by, another arm"


def tuning_problems(builder: ArmBuilder, tune: TuneSpec, arms: Sequence[Arm]) -> Iterator[Problem]:
    """Tuned values that an arm cannot have, and settings that both tuning and an arm set."""
    seen: dict[Problem, None] = {}
    for path in tune.paths:
        reason = builder.shared_reason(tuple(path.split("."))) or _never_tuned(path)
        if reason:
            yield builder.origins.problem(tuning_edit(path, None).target, reason, at_key=True)
            continue
        for arm in arms:
            yield from _chosen_twice(builder, tune, arm, path)
            for place, value in enumerate(tune.space_around(arm.train.lr)[path].ends):
                try:
                    builder.build(arm.name, [*arm.own, tuning_edit(path, value, str(place))], arm.target)
                except StudyError as error:
                    seen |= dict.fromkeys(_at_path(problem, path, builder) for problem in error.problems)
    yield from seen


def seed_problems(origins: Origins, tune: TuneSpec, seeds: Sequence[int]) -> Iterator[Problem]:
    """Seeds that both choose the settings and judge them."""
    if both := sorted(set(seeds) & set(tune.seed_numbers)):
        chosen = f"{tune.seed_numbers[0]} to {tune.seed_numbers[-1]}" if tune.seeds > 1 else str(tune.seed_numbers[0])
        reason = f"cannot include {', '.join(map(str, both))}, since tuning uses {chosen}: choose others"
        yield origins.problem(("seeds",), reason)


def _chosen_twice(builder: ArmBuilder, tune: TuneSpec, arm: Arm, path: str) -> Iterator[Problem]:
    for edit in arm.own:
        if common_length(edit.path, tuple(path.split("."))) == min(len(edit.path), path.count(".") + 1):
            reason = f"tuning sets {path} for every arm" + (f": {REMEDY}" if tune.space is None else "")
            yield builder.origins.problem(edit.target, reason, at_key=True)


def _never_tuned(path: str) -> str | None:
    if path == "vocab_size":
        return "cannot be tuned: the data determine the vocabulary size"
    if path.partition(".")[0] in (START, TEACHER):
        return f"{path.partition('.')[0]} cannot be tuned"
    if path.partition(".")[0] == DATA:
        return "cannot be tuned, since losses under different tokenizers are not comparable: make each an arm"
    return None


def _at_path(problem: Problem, path: str, builder: ArmBuilder) -> Problem:
    """Report an unknown path at the path itself, not at its values."""
    if problem.kind != "unknown_key":
        return problem
    return builder.origins.problem(tuning_edit(path, None).target, problem.reason, kind=problem.kind)


def teacher_problems(builder: ArmBuilder, arms: Sequence[Arm], folder: Path) -> Iterator[Problem]:
    """Teachers that do not exist, depend on another arm, or cannot read what their students read."""
    by_name = {arm.name: arm for arm in arms}
    for arm in arms:
        if arm.teacher is None:
            continue
        place, reason = (*arm.target, TEACHER), None
        if arm.teacher.arm is None:
            reason = _teacher_reason(arm, str(arm.teacher.checkpoint), folder)
        elif (source := by_name.get(arm.teacher.arm)) is None:
            reason = f"unknown arm '{arm.teacher.arm}'" + did_you_mean(arm.teacher.arm, by_name)
        elif source.sources:
            reason = f"cannot be taught by {source.name}, which itself {DEPENDS}"
        elif source.data != arm.data:
            reason = f"cannot be taught by {source.name}: their tokenizers differ"
        if reason is not None:
            yield builder.origins.problem(place, reason)


def _teacher_reason(arm: Arm, path: str, folder: Path) -> str | None:
    """Why a checkpoint cannot teach an arm; None if it can."""
    try:
        checkpoint = Checkpoint.at(path, folder)
        arm.train.objective.check(checkpoint.spec)
        theirs = _other_tokenizer(arm, checkpoint, folder)
    except SpecError as error:
        return f"{path} cannot teach {arm.name}: {error.reason}"
    except (CheckpointError, DataError) as error:
        return str(error)
    if theirs is None:
        return None
    named = f"{{kind: {theirs.kind}, path: {theirs.path}}}"
    return f"{path} has another tokenizer than {arm.name}: set data.tokenizer to {named}"


def start_problems(builder: ArmBuilder, arms: Sequence[Arm], folder: Path) -> Iterator[Problem]:
    """Arms whose start does not exist, or has no weights for them. folder: base of relative paths."""
    by_name = {arm.name: arm for arm in arms}
    for arm in arms:
        if arm.start is None:
            continue
        if arm.start.arm is not None:
            yield from _arm_problems(builder, arm, arm.start, by_name)
        else:
            yield from _checkpoint_problems(builder, arm, arm.start, folder)


def lora_problems(builder: ArmBuilder, arms: Sequence[Arm]) -> Iterator[Problem]:
    """Adapters without a trained start, for matrices that a model lacks, or with width or depth transfer."""
    for arm in arms:
        if arm.train.lora is None:
            continue
        place = next((edit.target for edit in arm.own if edit.path[:2] == (TRAIN, "lora")), (TRAIN, "lora"))
        if arm.start is None:
            reason = f"adapters need trained weights, and {arm.name} has no start: set start.arm or start.checkpoint"
            yield builder.origins.problem(place, reason)
        for name in ("width_transfer", "depth_transfer"):
            if getattr(arm.train, name) is not None:
                reason = f"cannot be combined with {name}: no rule is known for the learning rates of adapters"
                yield builder.origins.problem(place, reason)
        try:
            check_lora(arm.model, arm.train.lora)
        except SpecError as error:
            yield builder.origins.problem(place, error.reason)


def optimizer_problems(builder: ArmBuilder, arms: Sequence[Arm]) -> Iterator[Problem]:
    """Optimizers that average, of weights that are put back on the unit sphere, which an average leaves."""
    for arm in arms:
        if arm.train.optimizer.averages and arm.model.unit_weights:
            own = (edit.target for edit in arm.own if edit.path[:2] == (TRAIN, "optimizer"))
            reason = f"{arm.train.optimizer.kind} averages weights, which unit_weights of the model then rescales"
            yield builder.origins.problem(next(own, (TRAIN, "optimizer")), reason)


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
        yield from _conversion_problems(builder, arm, source.model, source.name)


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
    yield from _conversion_problems(builder, replace(arm, model=model), source, str(start.checkpoint))


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


def _conversion_problems(builder: ArmBuilder, arm: Arm, source: ModelSpec, name: str) -> Iterator[Problem]:
    try:
        check_conversion(source, arm.model, arm.start.growth if arm.start else None)
    except SpecError as error:
        yield builder.origins.problem(arm.target, f"cannot start from {name}: {error}")


def caveat_problems(origins: Origins, sections: StudySections, known: Sequence[str], noun: str) -> Iterator[Problem]:
    """Caveats and labels of arms, or of factors, that the study does not have. known: names of its arms or factors."""
    for place, caveat in enumerate(sections.caveats):
        if isinstance(caveat, Caveat) and caveat.arm is not None and caveat.arm not in known:
            reason = f"unknown {noun} '{caveat.arm}'" + did_you_mean(caveat.arm, known)
            yield origins.problem(("caveats", str(place), "arm"), reason)
    for name in sections.labels:
        if name not in known:
            yield origins.problem(("labels", name), f"unknown {noun} '{name}'" + did_you_mean(name, known))
