"""Reading a study: the file, one of its scales and `--set` edits → typed sections and resolved arms.

Every mistake is a `StudyError` whose lines say where the user wrote it and why it is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ablate.study.complaints import Problem, StudyError
from ablate.study.rung_reader import RungReader
from ablate.study.scales import Rungs, rungs_by_scale, scale_names
from ablate.study.study import Study
from ablate.study.written import Sets, edit_layers, read_study
from store.documents.study import SCALES
from store.extensions import modules_of

ON_A_GPU = ("gpu-hour", "gpu-minutes", "gpu")
"""Default scales on a GPU: the first that a study has."""
BY_SIZE = (*SCALES[:3], "gpu", *SCALES[3:])
"""Names of scales by size: `gpu` is what a study without shipped ones calls its own."""


def default_scale(scales: Sequence[str], device: str | None = None) -> str:
    """`cpu` on a CPU; on a GPU the first of `ON_A_GPU` that is among a study's scales, else `gpu`.

    device: `cpu` or `cuda`; None: `cuda` if torch finds a GPU.
    """
    import torch  # noqa: PLC0415 (slow to load, and a given scale does not need it)

    if device == "cpu" or (device is None and not torch.cuda.is_available()):
        return "cpu"
    return next((scale for scale in ON_A_GPU if scale in scales), "gpu")


def load_study(
    source: str | Path | Mapping[str, object] | Study,
    scale: str | None = None,
    sets: Sets = (),
    *,
    name: str | None = None,
    device: str | None = None,
    needs_arms: bool = True,
) -> Study:
    """Read a study, at one of its scales and with edits: every mistake is found before anything is trained.

    Args:
        source: the path of a study file, the name of a shipped study (`"norm_placement"`), a mapping with the keys of a
            study file, or a study that was read before, which keeps its scale and its edits unless others are given.
        scale: one of the study's scales; None: `cpu` on a CPU; on a GPU `gpu-hour`, or the study's own for a GPU.
        sets: edits by dotted path, over the file and its scale: `{"train.lr": 1e-3}` or `["train.lr=1e-3"]`.
        name: its name in the store. None: the file's name; for a map, a name derived from its content.
        device: selects the default scale: `cpu` or `cuda`; None: `cuda` if torch finds a GPU.
        needs_arms: False for a base alone, whose changes come from elsewhere.

    Returns:
        The study, checked, with its arms resolved.

    Raises:
        StudyError: with a line for every problem that one pass can find, each with its place and path.

    Example:
        >>> study = ablate.load_study("norm_placement", scale="cpu", sets={"seeds": 1})
        >>> [arm.name for arm in study.arms]
        ['pre', 'post', 'double']
    """
    if isinstance(source, Study):
        if scale is None and name is None and not sets:
            return source
        written, scale = source.written, scale or source.scale
    else:
        written = read_study(source)
    more = (*written.sets, *edit_layers(sets))
    named = replace(written, name=name or written.name, sets=more, needs_arms=needs_arms)
    asked, *others = rungs_by_scale(named, scale or default_scale(scale_names(named.document), device))
    studies, problems = studies_at(asked)
    for other in others:
        problems += studies_at(other)[1]
    if problems:
        found = {(problem.place, problem.path): problem for problem in reversed(problems)}
        for wing in modules_of(__name__):
            found = {key: wing.with_remedy(problem) for key, problem in found.items()}
        raise StudyError(found.values())
    return replace(studies[-1], smaller=tuple(map(loss_alone, studies[:-1])))


def next_scale(study: Study) -> str | None:
    """The next larger of the file's scales at which the base is another model or trains for longer; None if none."""
    known, as_written = scale_names(study.written.document), replace(study.written, sets=())
    for scale in BY_SIZE[BY_SIZE.index(study.scale) + 1 :] if study.scale in BY_SIZE else ():
        found = studies_at(rungs_by_scale(as_written, scale)[0])[0] if scale in known else []
        if not found:
            continue
        there = found[-1]
        is_longer = there.budget.given == study.budget.given and there.budget.amount > study.budget.amount
        if is_longer or there.arms[0].model != study.arms[0].model:
            return scale
    return None


def loss_alone(study: Study) -> Study:
    """A smaller rung without measurements, evaluations and probes: reports show only its loss and training speed."""
    unasked: dict[str, object] = dict.fromkeys(("measure", "evals", "probes"))
    return replace(study, sections=study.sections.model_copy(update=unasked))


def studies_at(rungs: Rungs) -> tuple[list[Study], list[Problem]]:
    """The study at every rung that is valid, and all problems. They name their rung, unless every rung has them or
    their path shows it."""
    studies, refused = [], dict[str | None, list[Problem]]()
    for each in rungs.every:
        try:
            studies.append(RungReader(each).study())
        except StudyError as error:
            refused[each.rung] = list(error.problems)
    problems = list(rungs.problems)
    times = Counter(problem for own in refused.values() for problem in set(own))
    for rung, own in refused.items():
        for problem in own:
            said = times[problem] == len(rungs.every) or rung is None or f"ladder.{rung}" in problem.path
            problems.append(problem if said else replace(problem, reason=f"{problem.reason} (at rung {rung})"))
    return studies, problems
