"""The best trials as an ordinary study, with seeds that the search did not choose them by."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

from ruamel.yaml import YAML

from ablate.searching.laboratory import StudyLaboratory
from ablate.searching.ranks import best_first
from ablate.searching.search import Search
from ablate.store import replacing
from ablate.study.yamlfile import StudyMap
from zoo.edits import Edits

SEEDS = 3
DROPPED = ("search", "arms", "tune", "grid", "ladder", "seeds", "question", "baseline")


def promote(lab: StudyLaboratory, search: Search, count: int) -> Path:
    """Write `<study>_promoted.yaml` beside the study. Trials count from 1000 for seeds; an ordinary study from 0."""
    done = search.done[-1]
    params = {trial.number: trial.params for trial in search.study.get_trials(deepcopy=False)}
    arms: dict[str, StudyMap] = {}
    known = {lab.study.arms[0].identity}
    for number in best_first(done, list(lab.spec.objectives.values())):
        identity = lab.space.arm("", params[number]).identity
        if len(arms) < count and identity not in known:
            known.add(identity)
            arms[f"trial_{number}"] = _nested(lab.space.settings(params[number]))
    beside = lab.study.path.parent if lab.study.path else lab.study.folder
    path = beside / f"{lab.study.name}_promoted.yaml"
    document = _document(lab, arms)
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write(
            f"# The best trials of a search, at scale {lab.study.scale}, with seeds that the search did not use.\n"
        )
        yaml = YAML()
        yaml.width = 120
        yaml.dump(document, file)
    return path


def _document(lab: StudyLaboratory, arms: dict[str, StudyMap]) -> StudyMap:
    written = lab.study.written.document.data
    kept = {key: value for key, value in written.items() if key.partition(".")[0] not in DROPPED}
    scales = kept.get("scales")
    if scales:
        kept["scales"] = {name: _without(edits) for name, edits in scales.items()}
    question = f"Do the best trials of the search {lab.study.name} hold with fresh seeds?"
    return {"question": question, "baseline": lab.study.baseline, "arms": arms, "seeds": SEEDS, **kept}


def _without(edits: StudyMap) -> StudyMap:
    return {key: value for key, value in edits.items() if key.partition(".")[0] not in DROPPED}


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
