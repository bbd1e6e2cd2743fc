"""The best trials as an ordinary study, with seeds that the search did not choose them by."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

from ablate.searching.laboratory import StudyLaboratory
from ablate.searching.search import Search
from ablate.searching.search_document import standings_of
from ablate.store.documents.study import RATE
from ablate.study.promoting import confirming, write_study
from ablate.study.written import SHIPPED
from ablate.study.yamlfile import StudyMap
from zoo.edits import Edits

SEEDS = 3


def promote(lab: StudyLaboratory, search: Search, count: int) -> Path:
    """Write `<study>_promoted.yaml` beside the study, where its relative paths hold, or into the current folder for a
    study that ships with the package. Trials count from 1000 for seeds; an ordinary study from 0."""
    standing = standings_of(lab, search.study, search.done)
    params = {trial.number: trial.params for trial in search.study.get_trials(deepcopy=False)}
    arms: dict[str, StudyMap] = {}
    known = {lab.study.arms[0].identity}
    for number in standing.order():
        identity = lab.space.arm("", params[number]).identity
        if len(arms) < count and identity not in known:
            known.add(identity)
            arms[f"trial_{number}"] = _nested(lab.space.written(lab.space.settings(params[number])))
    own = lab.study.path is not None and not lab.study.path.resolve().is_relative_to(SHIPPED)
    folder = lab.study.path.parent if own and lab.study.path else Path.cwd()
    question = f"Do the best trials of the search {lab.study.name} hold with fresh seeds?"
    comment = f"The best trials of a search, at scale {lab.study.scale}, with seeds that the search did not use."
    document = confirming(lab.study, question, arms, SEEDS)
    if any(RATE in edits for edits in arms.values()):
        document = {**document, "tune": "off"}  # the search chose these rates; the baseline has that of the file
    return write_study(folder / f"{lab.study.name}_promoted.yaml", comment, document)


def _nested(settings: Edits) -> StudyMap:
    """Settings of a part beside its kind, since a study says nothing twice: `block.ffn: {kind: gelu, d_ff: 4x}`."""
    edits: StudyMap = {}
    for path, value in settings.items():
        part = next((part for part in edits if path.startswith(f"{part}.")), None)
        if part is None:
            edits[path] = deepcopy(value)  # the same list twice would be an alias in YAML
            continue
        kind = edits[part]
        whole = kind if isinstance(kind, dict) else {"kind": kind}
        edits[part] = {**whole, path.removeprefix(f"{part}."): value}
    return edits
