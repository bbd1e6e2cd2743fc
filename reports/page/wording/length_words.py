"""Training length of arms, in words."""

from __future__ import annotations

from collections.abc import Sequence

from reports.judge.sentences import listed
from reports.page.wording.rate_words import rates
from store.documents import StudyArm, StudyDocument, length
from store.documents.study_arm import taught_by


def undertrained(study: StudyDocument) -> str:
    """` Undertrained: …`, appended to the answer that it qualifies; empty if every arm trained long enough."""
    found = length.undertrained({arm.name: arm.length for arm in study.arms})
    return f" {found}" if found else ""


def conditions(study: StudyDocument) -> str:
    """Conditions of an answer: `57 k non-embedding parameters, 20 tokens per parameter, learning rates not tuned`."""
    return f"{', '.join(_size_and_length(study))}{_checkpoints(study)}, {rates(study)}"


def scale_of(study: StudyDocument) -> str:
    """`57 k non-embedding parameters · 20 tokens per parameter`."""
    return f"{' · '.join(_size_and_length(study))}{_checkpoints(study)}"


def _size_and_length(study: StudyDocument) -> tuple[str, str]:
    sizes = _range([arm.parameters_non_embedding for arm in study.arms])
    lengths = _range([arm.length.tokens_per_parameter for arm in study.arms])
    return f"{sizes} non-embedding parameters", f"{lengths} tokens per parameter"


def _checkpoints(study: StudyDocument) -> str:
    """` on top of the checkpoint SmolLM2`, with the arms' names if other arms have no checkpoint."""
    named: dict[str, list[str]] = {}
    for arm in study.arms:
        if arm.checkpoint:
            named.setdefault(arm.checkpoint, []).append(arm.name)
    every = any(len(names) == len(study.arms) for names in named.values())
    found = (f"{path}{'' if every else f' ({listed(names)})'}" for path, names in named.items())
    return f" on top of the checkpoint {'; '.join(found)}" if named else ""


def _range(values: Sequence[float]) -> str:
    """`57 k`, or `57 k to 60 k`."""
    low, high = (f"{prefixed(value)}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def prefixed(value: float) -> str:
    """Two significant digits, with a decimal prefix."""
    for unit, scale in ((" G", 1e9), (" M", 1e6), (" k", 1e3)):
        if value >= scale:
            return f"{float(f'{value / scale:.2g}'):g}{unit}"
    return f"{float(f'{value:.2g}'):g}"


def trained(arm: StudyArm, train_tokens: int | None) -> str:
    """`pre: 543 steps, 20 tokens per non-embedding parameter, 0.3 epochs.`"""
    epochs = "" if train_tokens is None else f", {arm.tokens / train_tokens:.2g} epochs"
    per_parameter = f"{arm.length.tokens_per_parameter:.3g} tokens per non-embedding parameter"
    source = f", from the checkpoint {arm.checkpoint}" if arm.checkpoint else ""
    if arm.teacher:
        source += f", {taught_by(arm.teacher)}"
    return f"{arm.name}: {arm.steps:,} steps{source}, {per_parameter}{epochs}."
