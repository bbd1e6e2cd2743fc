"""Reading a study: the file, one of its scales and `--set` edits → typed sections and resolved arms.

Every mistake is a `StudyError` whose lines say where the user wrote it and why it is wrong.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ablate.study.complaints import Problem, StudyError
from ablate.study.rung_reader import RungReader
from ablate.study.scales import Rungs, rungs_by_scale, scale_names
from ablate.study.schema import study_schema
from ablate.study.study import Study
from ablate.study.written import Sets, edit_layers, read_study
from store.documents.study import FORMER_SCALES, SCALES
from zoo.vocabulary import names_for

ON_A_GPU = ("gpu-hour", "gpu-minutes", "gpu-quick", "gpu")
"""Default scales on a GPU: the first that a study has."""


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
        raise StudyError(_with_home(each) if each.kind == "unknown_key" else each for each in found.values())
    return replace(studies[-1], smaller=tuple(map(loss_alone, studies[:-1])))


def next_scale(study: Study) -> str | None:
    """The next larger of the file's scales at which the base is another model or trains for longer; None if none."""
    by_size = {FORMER_SCALES.get(name, name): name for name in scale_names(study.written.document)}
    here = FORMER_SCALES.get(study.scale, study.scale)
    as_written = replace(study.written, sets=())
    for size in SCALES[SCALES.index(here) + 1 :] if here in SCALES else ():
        found = studies_at(rungs_by_scale(as_written, by_size[size])[0])[0] if size in by_size else []
        if found and _is_larger(found[-1], study):
            return by_size[size]
    return None


def _is_larger(there: Study, here: Study) -> bool:
    if there.arms[0].model != here.arms[0].model:
        return True
    return there.budget.given == here.budget.given and there.budget.amount > here.budget.amount


def loss_alone(study: Study) -> Study:
    """A smaller rung without measurements, evaluations and probes: reports show only its loss and training speed."""
    unasked: dict[str, object] = dict.fromkeys(("measure", "evals", "probes"))
    return replace(study, sections=study.sections.model_copy(update=unasked))


def studies_at(rungs: Rungs) -> tuple[list[Study], list[Problem]]:
    """The study at every rung that is valid, and all problems."""
    studies, refused = [], dict[str | None, list[Problem]]()
    for each in rungs.every:
        try:
            studies.append(RungReader(each).study())
        except StudyError as error:
            refused[each.rung] = list(error.problems)
    return studies, [*rungs.problems, *_by_rung(refused, len(rungs.every))]


def _by_rung(refused: Mapping[str | None, Sequence[Problem]], count: int) -> Iterator[Problem]:
    """Problems that name their rung, unless every rung has them or their path shows it."""
    times = Counter(problem for problems in refused.values() for problem in set(problems))
    for rung, problems in refused.items():
        for problem in problems:
            said = times[problem] == count or rung is None or f"ladder.{rung}" in problem.path
            yield problem if said else replace(problem, reason=f"{problem.reason} (at rung {rung})")


SECTIONS = ("train", "base", "budget", "data", "tune", "measure", "evals", "search")
"""Sections in the order in which a setting is looked up; `base.block` comes next, then deeper settings."""
ELSEWHERE = {
    "seed": "seeds",
    "model": "base",
    **dict.fromkeys(("steps", "max_steps", "num_steps", "n_steps", "iterations", "max_iters"), "budget.tokens"),
    **dict.fromkeys(("epochs", "n_epochs", "num_epochs", "num_train_epochs", "max_tokens"), "budget.tokens"),
}
"""Settings of other tools, and their equivalents here."""
PARTS = ("ffn", "mixer")
"""Parts of a block in the order in which a setting is looked up; others come after them."""
COMMON = ("kind", "name", "source")
"""Names of settings that many parts have: too ambiguous for a hint."""


@functools.cache
def _paths() -> tuple[str, ...]:
    """Paths of all settings of sections. Cached, since the schema takes longer than the study."""
    return tuple(path for path in study_schema()["properties"] if path.split(".")[0] in SECTIONS)


def _with_home(problem: Problem) -> Problem:
    """The problem of an unknown key; if another section has the key, it suggests the path there."""
    said = re.fullmatch(r"unknown key(?: \(did you mean '(.*)'\?\)|: one of .*)?", problem.reason)
    root = r"(?:scales\.[^.]+\.)?(?:(base|arms\.[^.]+|search\.space)\.)?"
    place = re.fullmatch(root + r"((?:\w+\.)*)(\w+)", problem.path)
    if said is None or place is None:
        return problem
    around, key, near = place[2].split(".")[:-1], place[3], said[1] and said[1].rpartition(".")[2]
    section = around[0] if around[:1] and around[0] in SECTIONS else "base" if place[1] else None
    if around and section is None:
        return problem
    if near and (around or near == key or near in names_for(key)):
        return problem
    # inside a part, only settings of the section around it are meant
    is_inside = len(around) > 1 or (around and section == "base")
    home = home_of(key, [path for path in _paths() if path.split(".")[0] == section] if is_inside else _paths())
    if home is None or home == problem.path:
        return problem
    home = home.removeprefix("base.") if place[1] and place[1] != "base" else home
    return replace(problem, reason=f"unknown key (did you mean '{home}'?)")


def home_of(key: str, paths: Iterable[str]) -> str | None:
    """The path that ends in a key, or in this project's name for it; None if there is none, or the key is ambiguous."""
    if key in COMMON or key in ELSEWHERE:
        return ELSEWHERE.get(key)
    names = {key, *names_for(key)}
    found = [path for path in paths if "." in path and path.rpartition(".")[2] in names]
    return min(found, key=_distance, default=None)


def _distance(path: str) -> tuple[int, int, int]:
    """Sort key: settings of a section itself come first, then those of blocks."""
    section, *inner = path.split(".")
    if section == "base" and inner[0] == "block" and len(inner) > 1:
        return 1, len(inner), PARTS.index(inner[1]) if inner[1] in PARTS else len(PARTS)
    return 2 * (len(inner) > 1), len(inner), SECTIONS.index(section)
