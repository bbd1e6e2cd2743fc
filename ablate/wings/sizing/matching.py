"""Parameter matching: adjust one setting (the knob) in every arm to match the baseline's number of parameters."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import islice

from ablate.planning.make_plan import Matched
from ablate.study.sections import ParameterMatch
from ablate.study.study import Study, StudyError
from zoo.costs import Cost, cost
from zoo.errors import SpecError
from zoo.settings.edits import flatten
from zoo.spec import ModelSpec

SETTING = "budget.parameters"
TOLERANCE = 0.005
"""Largest relative difference at which parameters count as matched."""
LARGEST = 2**24
"""Largest value of a knob that is tried."""
REFUSALS = 1024
"""Number of consecutive illegal values of a knob after which the search gives up."""

Count = Callable[[int], int | None]
"""Value of a knob → parameters; None if the model refuses the value."""


class MatchError(ValueError):
    """No value of a knob matches the parameters. The message is a predicate whose subject is the knob."""


def match_parameters(study: Study, specs: Sequence[ModelSpec], match: ParameterMatch) -> list[Matched]:
    """Match the parameters of every arm to the baseline's. specs: those of the arms.

    An arm that starts from trained weights keeps its shape.

    A ratio in an arm's own edits (`d_ff: 8/3x`) is replaced by the number found; a number there is an error.

    Raises:
        StudyError: an arm lacks the knob, sets or tunes it, no legal value matches, or two arms become the same.
    """
    target = parameters(cost(specs[0]), match)
    matched = [Matched(study.arms[0], specs[0], {})]
    for arm, spec in zip(study.arms[1:], specs[1:], strict=True):
        if any(source.gives_weights for source in arm.given.values()):
            matched.append(Matched(arm, spec, {}))
            continue
        if match.knob in arm.tuned:
            reason = f"{SETTING} sets {match.knob} in every arm, so it cannot be tuned"
            raise study.error(f"tune.space.{match.knob}", reason)
        for path, value in flatten(arm.edits):
            if path == match.knob and isinstance(value, int):
                reason = f"{SETTING} sets {path} in every arm: no arm can set it to a number"
                raise study.error(arm.place(path), reason)
        try:
            matched.append(Matched(arm, *solve(spec, target, match)))
        except MatchError as error:
            raise study.error(SETTING, f"{match.knob}: {error} (in arm {arm.name})") from error
    seen: dict[tuple[str, ...], str] = {}
    for each in matched:
        if each.arm.seeds == ():  # not trained: only the target of the matching
            continue
        identity = each.spec.digest, *each.arm.identity[1:]
        twin = seen.setdefault(identity, each.arm.name)
        if twin != each.arm.name:
            reason = f"with {match.knob} adjusted to match the baseline's parameters, it is the same as {twin}"
            raise StudyError([study.origins.problem(each.arm.target, reason, at_key=True)])
    return matched


def parameters(costs: Cost, match: ParameterMatch) -> int:
    """Number of parameters, with or without embeddings as `match.count` says."""
    return costs.params - costs.params_embedding * (match.count == "non_embedding")


def solve(spec: ModelSpec, target: int, match: ParameterMatch) -> tuple[ModelSpec, dict[str, int]]:
    """The spec with the knob at the legal value nearest to `target` parameters, and that edit.

    A spec that is at least as near already is returned unchanged, with no edit.

    Raises:
        MatchError: the spec has no such knob, the knob is not a number or does not change the parameters, or the
            nearest value misses by more than `TOLERANCE`.
    """

    refusals: dict[int, str] = {}

    @cache
    def count(value: int) -> int | None:
        try:
            return parameters(cost(spec.edit({match.knob: value})), match)
        except SpecError as error:
            refusals[value] = error.reason if error.path == match.knob else str(error)
            if error.kind == "unknown_key":  # whatever the value
                raise MatchError(refusals[value]) from error
            return None

    value = nearest(count, target, match.step)
    if value is None:
        raise MatchError(refusals[match.step])
    solved = spec.edit({match.knob: value})
    found, own = (parameters(cost(each), match) for each in (solved, spec))
    kept = abs(own - target) <= abs(found - target)
    if abs((own if kept else found) - target) > TOLERANCE * target:
        miss = 100 * (found / target - 1)
        raise MatchError(f"cannot give {target:,} parameters: the nearest, {value}, gives {found:,} ({miss:+.1f} %)")
    return (spec, {}) if kept else (solved, {match.knob: value})


def nearest(count: Count, target: int, step: int = 1) -> int | None:
    """The legal multiple of `step` whose count is nearest to `target`, the smaller of two; None if none is legal.

    The count has to be monotonic in the value: doubling finds an upper end, bisection the value.

    Raises:
        MatchError: several values are legal, and the smallest and largest tried have equal counts.
    """

    def legal(values: Iterable[int]) -> int | None:
        return next((value for value in islice(values, REFUSALS) if count(value) is not None), None)

    def miss(value: int) -> int:
        found = count(value)
        assert found is not None  # asked of legal values only
        return found - target

    first = legal(itertools.count(step, step))
    if first is None:
        return None
    last = _upper_end(first, step, legal, miss)
    if last == first:
        return first
    if miss(last) == miss(first):
        raise MatchError("does not change the parameters")
    sign = 1 if miss(last) > miss(first) else -1
    values = range(first, last + 1, step)
    index = bisect_left(values, 0, key=lambda value: sign * miss(legal(range(value, last + 1, step)) or last))
    above = legal(values[index:]) or last
    below = legal(reversed(values[:index])) or first
    return min(below, above, key=lambda value: (abs(miss(value)), value))


def _upper_end(first: int, step: int, legal: Callable[[Iterable[int]], int | None], miss: Callable[[int], int]) -> int:
    """A legal value past the target; else the last one before legal values end or counts move away from the target."""
    last, above = first, miss(first) > 0
    while last < LARGEST and (miss(last) > 0) == above:
        beyond = itertools.count(2 * last, step)
        further = legal(beyond) or legal(range(2 * last - step, last, -step))
        if further is None:
            break
        if (miss(further) > 0) == above and abs(miss(further)) > abs(miss(last)):
            break
        last = further
    return last
