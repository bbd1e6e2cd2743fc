"""Studies written from others: what a search or a screen selected, confirmed with seeds that did not select it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from ruamel.yaml import YAML

from ablate.store import replacing
from ablate.study.study import Study
from ablate.study.yamlfile import StudyMap

REPLACED = ("question", "baseline", "arms", "seeds")
DROPPED = (*REPLACED, "search", "tune", "grid", "ladder", "factors", "design", "contrasts", "claims")


def confirming(
    study: Study,
    question: str,
    arms: Mapping[str, StudyMap],
    seeds: int | Sequence[int],
    dropped: Collection[str] = DROPPED,
) -> StudyMap:
    """The study with these arms and seeds instead of its own, without its sections that are `dropped`: by default arms
    tune their own rates, whatever the study says."""
    kept = _without(study.written.document.data, dropped)
    if scales := kept.get("scales"):
        kept["scales"] = {name: _without(edits, dropped) for name, edits in scales.items()}
    own = {"question": question, "baseline": study.baseline, "arms": dict(arms)}
    return {**own, "seeds": seeds if isinstance(seeds, int) else list(seeds), **kept}


def _without(edits: StudyMap, dropped: Collection[str]) -> StudyMap:
    return {key: value for key, value in edits.items() if key.partition(".")[0] not in dropped}


def write_study(path: Path, comment: str, document: StudyMap) -> Path:
    """A study file that begins with a comment."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write(f"# {comment}\n")
        yaml = YAML()
        yaml.width = 120
        yaml.dump(document, file)
    return path
