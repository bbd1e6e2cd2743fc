"""Problems between parts of a study that are each valid: tuning, seeds, optimizers and caveats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ablate.study.arms import DATA, SOURCES, TRAIN, Arm, ArmBuilder, tuning_edit
from ablate.study.complaints import Problem, StudyError
from ablate.study.layers import Origins, common_length
from ablate.study.sections import StudySections
from ablate.study.tune_spec import TuneSpec
from store.documents import Caveat
from zoo.errors import did_you_mean

REMEDY = "set `tune: off` if learning rates are part of the question, `tune: carried` if they were tuned earlier"


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
    if path.partition(".")[0] in SOURCES:
        return f"{path.partition('.')[0]} cannot be tuned"
    if path.partition(".")[0] == DATA:
        return "cannot be tuned, since losses under different tokenizers are not comparable: make each an arm"
    return None


def _at_path(problem: Problem, path: str, builder: ArmBuilder) -> Problem:
    """Report an unknown path at the path itself, not at its values."""
    if problem.kind != "unknown_key":
        return problem
    return builder.origins.problem(tuning_edit(path, None).target, problem.reason, kind=problem.kind)


def optimizer_problems(builder: ArmBuilder, arms: Sequence[Arm]) -> Iterator[Problem]:
    """Optimizers that average, of weights that are put back on the unit sphere, which an average leaves."""
    for arm in arms:
        if arm.train.optimizer.averages and arm.model.unit_weights:
            own = (edit.target for edit in arm.own if edit.path[:2] == (TRAIN, "optimizer"))
            reason = f"{arm.train.optimizer.kind} averages weights, which unit_weights of the model then rescales"
            yield builder.origins.problem(next(own, (TRAIN, "optimizer")), reason)


def caveat_problems(origins: Origins, sections: StudySections, known: Sequence[str], noun: str) -> Iterator[Problem]:
    """Caveats and labels of arms, or of factors, that the study does not have. known: names of its arms or factors."""
    for place, caveat in enumerate(sections.caveats):
        if isinstance(caveat, Caveat) and caveat.arm is not None and caveat.arm not in known:
            reason = f"unknown {noun} '{caveat.arm}'" + did_you_mean(caveat.arm, known)
            yield origins.problem(("caveats", str(place), "arm"), reason)
    for name in sections.labels:
        if name not in known:
            yield origins.problem(("labels", name), f"unknown {noun} '{name}'" + did_you_mean(name, known))
