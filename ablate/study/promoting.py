"""Studies written from others: what a search or a screen selected, confirmed with seeds that did not select it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from io import StringIO
from pathlib import Path

from ruamel.yaml import YAML

from ablate.errors import ArgumentError
from ablate.store import replacing
from ablate.study.study import Study
from ablate.study.yamlfile import StudyMap
from zoo.settings.identity import digest_of

REPLACED = ("question", "baseline", "arms", "seeds")
UNEDITED = "# The next --promote replaces this file unless it was edited ({digest})."
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
    """Write a study file that begins with a comment. Raises ArgumentError as `refuse_edited` does."""
    refuse_edited(path)
    yaml, body = YAML(), StringIO()
    yaml.width = 120
    yaml.dump(document, body)
    lines = [f"# {comment}", body.getvalue()]
    mark = UNEDITED.format(digest=digest_of(lines))
    with replacing(path) as temporary:
        temporary.write_text("\n".join([lines[0], mark, lines[1]]), encoding="utf-8")
    return path


def refuse_edited(path: Path) -> None:
    """Raises ArgumentError for a file that is not as `write_study` left it: somebody's work would be lost."""
    if not path.exists():
        return
    comment, mark, body = [*path.read_text(encoding="utf-8", errors="replace").split("\n", 2), "", ""][:3]
    if mark != UNEDITED.format(digest=digest_of([comment, body])):
        raise ArgumentError("promote", f"{path} was edited, or is not from --promote: move or delete it first")
