"""What is wrong with arms that are each well made: how they are tuned, and what they start from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ablate.study.arms import DATA, START, Arm, ArmBuilder, tuning_edit
from ablate.study.layers import common_length
from ablate.study.problems import Problem, StudyError
from ablate.study.tune_spec import TuneSpec
from zoo.conversion import check_conversion
from zoo.errors import SpecError, did_you_mean

REMEDY = "write `tune: off` if rates are part of the question, `tune: carried` if these were tuned before"


def tuning_problems(builder: ArmBuilder, tune: TuneSpec, arms: Sequence[Arm]) -> Iterator[Problem]:
    """Values that an arm cannot have, and settings that both tuning and an arm would choose."""
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


def _chosen_twice(builder: ArmBuilder, tune: TuneSpec, arm: Arm, path: str) -> Iterator[Problem]:
    for edit in arm.own:
        if common_length(edit.path, tuple(path.split("."))) == min(len(edit.path), path.count(".") + 1):
            reason = f"tune chooses {path} for every arm" + (f": {REMEDY}" if tune.space is None else "")
            yield builder.origins.problem(edit.target, reason, at_key=True)


def _never_tuned(path: str) -> str | None:
    if path == "vocab_size":
        return "the vocabulary follows from the data"
    if path.partition(".")[0] == START:
        return "start cannot be tuned"
    if path.partition(".")[0] == DATA:
        return "losses under different tokenizers are not comparable: make them arms"
    return None


def _at_path(problem: Problem, path: str, builder: ArmBuilder) -> Problem:
    """An unknown path is to blame itself, not its values."""
    if problem.kind != "unknown_key":
        return problem
    return builder.origins.problem(tuning_edit(path, None).target, problem.reason, kind=problem.kind)


def start_problems(builder: ArmBuilder, arms: Sequence[Arm], tuned: bool) -> Iterator[Problem]:
    """Arms that start from what is not there, or is not trained from initial values itself."""
    by_name = {arm.name: arm for arm in arms}
    for arm in arms:
        if arm.start is None:
            continue
        place, source = (*arm.target, START, "arm"), by_name.get(arm.start.arm)
        if source is None:
            yield builder.origins.problem(place, "there is no such arm" + did_you_mean(arm.start.arm, by_name))
        elif source.start is not None:
            yield builder.origins.problem(place, f"{source.name} starts from another arm itself")
        else:
            if source.data != arm.data:
                yield builder.origins.problem(arm.target, f"cannot start from {source.name}: its tokenizer differs")
            try:
                check_conversion(source.model, arm.model, arm.start.growth)
            except SpecError as error:
                yield builder.origins.problem(arm.target, f"cannot start from {source.name}: {error}")
        if tuned:
            reason = "an arm that starts from another cannot be tuned: write `tune: off`"
            yield builder.origins.problem((*arm.target, START), reason)
