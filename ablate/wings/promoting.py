"""Studies derived from others: the selection of a search or a screen, confirmed with fresh seeds; and a proposal, which
compares a base with all changes kept before to the same with one more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

from pydantic import JsonValue
from ruamel.yaml import YAML

from ablate.study.layers import setting_layer
from ablate.study.reading import load_study
from ablate.study.study import Study
from ablate.study.written import derived
from ablate.study.yamlfile import StudyMap
from store import replacing
from store.errors import ArgumentError
from store.files import read_regular
from zoo.settings.edits import merge
from zoo.settings.identity import digest_of

UNEDITED = "# The next --promote replaces this file unless it was edited ({digest})."
DROPPED = (
    *("question", "baseline", "arms", "seeds", "search", "tune", "grid", "ladder", "factors", "design"),
    *("contrasts", "claims", "caveats", "labels", "published"),
)


def confirming(
    study: Study,
    question: str,
    arms: Mapping[str, StudyMap],
    seeds: int | Sequence[int],
    dropped: Collection[str] = DROPPED,
) -> StudyMap:
    """The study with these arms and seeds instead of its own, without the sections in `dropped`. By default these
    include `tune`, so that each arm tunes its own learning rate."""
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
    """Raises ArgumentError for a file that is not as `write_study` wrote it: edits would be lost."""
    if not path.exists():
        return
    comment, mark, body = [*read_regular(path).decode(errors="replace").split("\n", 2), "", ""][:3]
    if mark != UNEDITED.format(digest=digest_of([comment, body])):
        raise ArgumentError("promote", f"{path} was edited, or is not from --promote: move or delete it first")


CHANGE = "change"
"""Name of the proposed arm."""
UNFAIR = {
    "data": "both train on the same data",
    "seeds": "seeds are fresh for every proposal",
    "budget": "both have the budget of the base (--set budget=… changes it for both)",
    "evals": "both are evaluated the same way",
    "measure": "both are measured the same way",
    "tune": "both tune their learning rates the same way",
    "margin": "both use the margin of the base",
    "start": "both start from initial values",
    "teacher": "neither has a teacher",
    "train.context": "both use the same context",
    "train.objective": "losses of different objectives are not comparable",
}
"""Paths that a proposal may not touch, and why."""

Edits = dict[str, JsonValue]


def changes(texts: Iterable[str]) -> Edits:
    """Edits by dotted path from texts such as `block.ffn.activation=relu2`; values are YAML. Raises StudyError."""
    return {path: value for text in texts for path, value in setting_layer(text, "--change").written.items()}


def refuse_unfair(edits: Mapping[str, object]) -> None:
    """Raises ArgumentError if a proposal changes nothing, or a path in `UNFAIR`."""
    if not edits:
        raise ArgumentError("change", "needs at least one edit, such as block.ffn.activation=relu2")
    for path in edits:
        for frozen, reason in UNFAIR.items():
            if f"{path}.".startswith(f"{frozen}."):
                raise ArgumentError("change", f"a proposal cannot change {path}: {reason}")


def proposal(
    base: Study,
    name: str,
    edits: Mapping[str, object],
    kept: Iterable[Mapping[str, object]],
    seeds: Sequence[int],
    scale: str | None = None,
) -> Study:
    """The study that only compares the change with the base: without the base's own arms, and without measurements.

    kept: changes that were kept before, which become part of the base. Raises StudyError if the change cannot be built.
    """
    together: Edits = {}
    for before in kept:
        together = dict(merge(together, before))
    question = f"Does {name} improve on the base?"
    dropped = {*DROPPED, "measure", "evals", "probes", "pilot"} - {"tune"}
    data = confirming(base, question, {CHANGE: dict(edits)}, seeds, dropped)
    alone = {"measure": None, "evals": None, "pilot": True}
    sets = {part if part == "train" else f"base.{part}": value for part, value in together.items()}
    written = derived(base.written, name, data, {**sets, **alone})
    return load_study(replace(base, written=written), scale or base.scale)
