"""A proposal as a study: a base, with the changes that were kept before, and the same with one more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pydantic import JsonValue

from ablate.errors import ArgumentError
from ablate.study.layers import setting_layer
from ablate.study.promoting import DROPPED, confirming
from ablate.study.reading import load_study
from ablate.study.study import Study
from ablate.study.written import derived
from zoo.settings.edits import merge

CHANGE = "change"
"""The arm that is proposed."""
UNFAIR = {
    "data": "what is learnt is the same for both",
    "seeds": "seeds are fresh for every proposal",
    "budget": "both have the budget of the base (--set budget=… changes it for both)",
    "evals": "both are measured alike",
    "measure": "both are measured alike",
    "tune": "both tune their rates alike",
    "margin": "the margin is the base's",
    "start": "both start from initial values",
    "teacher": "both learn from text alone",
    "train.context": "both read the same context",
    "train.objective": "losses of two objectives cannot be compared",
}
"""Paths that a proposal may not touch, and why."""

Edits = dict[str, JsonValue]


def changes(texts: Iterable[str]) -> Edits:
    """Edits by dotted path from texts such as `block.ffn.activation=relu2`; values are YAML. Raises StudyError."""
    return {path: value for text in texts for path, value in setting_layer(text).written.items()}


def refuse_unfair(edits: Mapping[str, object]) -> None:
    """Raises ArgumentError where a proposal changes what is not the model or how it is trained."""
    if not edits:
        raise ArgumentError("change", "nothing is changed: name an edit such as block.ffn.activation=relu2")
    for path in edits:
        for frozen, reason in UNFAIR.items():
            if f"{path}.".startswith(f"{frozen}."):
                raise ArgumentError("change", f"{path} is not for a proposal to change: {reason}")


def proposal(
    base: Study,
    name: str,
    edits: Mapping[str, object],
    kept: Iterable[Mapping[str, object]],
    seeds: Sequence[int],
    scale: str | None = None,
) -> Study:
    """The study that compares the change with the base, and nothing else: no arms of the base's own, no measurements.

    Raises StudyError where the change cannot be built.
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
