"""Arms with the baseline's parameters: the study's knob, turned in every arm, with errors where the user wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ablate.planning.budgets import MatchError, parameters, solve
from ablate.study.arms import Arm
from ablate.study.study import Study, StudyError
from zoo.costs import cost
from zoo.settings.edits import flatten
from zoo.spec import ModelSpec

SETTING = "budget.parameters"


@dataclass(frozen=True)
class Matched:
    """Model trained for an arm, and the edit that matching made beside the arm's own; none if it needed none."""

    arm: Arm
    spec: ModelSpec
    matching: dict[str, int]


def match_parameters(study: Study, specs: Sequence[ModelSpec]) -> list[Matched]:
    """Every arm of the study, given its spec, with the baseline's parameters where the budget asks for them.

    An arm that starts from another keeps its own.

    A ratio in an arm's own edits (`d_ff: 8/3x`) gives way to the number that was found; a number there is an error.

    Raises:
        StudyError: an arm lacks the knob, sets or tunes it, no legal value matches, or two arms become the same.
    """
    match = study.budget.parameters
    arms = list(zip(study.arms, specs, strict=True))
    if match is None:
        return [Matched(arm, spec, {}) for arm, spec in arms]
    target = parameters(cost(specs[0]), match)
    matched = [Matched(study.arms[0], specs[0], {})]
    for arm, spec in arms[1:]:
        if arm.start is not None:  # it keeps the shape of what it starts from
            matched.append(Matched(arm, spec, {}))
            continue
        _refuse_own(study, match.knob, arm)
        try:
            matched.append(Matched(arm, *solve(spec, target, match)))
        except MatchError as error:
            raise study.error(SETTING, f"{match.knob}: {error} (in arm {arm.name})") from error
    seen: dict[tuple[str, ...], str] = {}
    for each in matched:
        if each.arm.seeds == ():  # it is only what the others are matched with
            continue
        identity = each.spec.digest, *each.arm.identity[1:]
        twin = seen.setdefault(identity, each.arm.name)
        if twin != each.arm.name:
            reason = f"with {match.knob} adjusted to match the baseline's parameters, it is the same as {twin}"
            raise StudyError([study.origins.problem(each.arm.target, reason, at_key=True)])
    return matched


def _refuse_own(study: Study, knob: str, arm: Arm) -> None:
    if knob in arm.tuned:
        raise study.error(f"tune.space.{knob}", f"{SETTING} sets {knob} in every arm, so it cannot be tuned")
    for path, value in flatten(arm.edits):
        if path == knob and isinstance(value, int):
            raise study.error(arm.place(path), f"{SETTING} sets {knob} in every arm: no arm can set it to a number")
