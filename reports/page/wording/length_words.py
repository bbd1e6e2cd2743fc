"""Training length of arms, in words."""

from __future__ import annotations

from reports.judge.sentences import listed, prefixed_range
from reports.page.wording.rate_words import rates
from store.documents import StudyArm, StudyDocument, length
from store.documents.study_arm import taught_by


def undertrained(study: StudyDocument) -> str:
    """` Undertrained: …`, appended to the answer that it qualifies; empty if every arm trained long enough."""
    found = length.undertrained({arm.name: arm.length for arm in study.arms})
    return f" {found}" if found else ""


def conditions(study: StudyDocument) -> str:
    """Conditions of an answer: `57 k parameters, 20 tokens per parameter, learning rates not tuned`."""
    return f"{', '.join(_size_and_length(study))}{_checkpoints(study)}, {rates(study)}"


def scale_of(study: StudyDocument) -> str:
    """`57 k parameters · 20 tokens per parameter`."""
    return f"{' · '.join(_size_and_length(study))}{_checkpoints(study)}"


def _size_and_length(study: StudyDocument) -> tuple[str, str]:
    sizes = prefixed_range([arm.parameters_non_embedding for arm in study.arms])
    lengths = prefixed_range([arm.length.tokens_per_parameter for arm in study.arms])
    return f"{sizes} parameters", f"{lengths} tokens per parameter"


def _checkpoints(study: StudyDocument) -> str:
    """` on top of the checkpoint SmolLM2`, with the arms' names if other arms have no checkpoint."""
    named: dict[str, list[str]] = {}
    for arm in study.arms:
        if arm.checkpoint:
            named.setdefault(arm.checkpoint, []).append(arm.name)
    every = any(len(names) == len(study.arms) for names in named.values())
    found = (f"{path}{'' if every else f' ({listed(names)})'}" for path, names in named.items())
    return f" on top of the checkpoint {'; '.join(found)}" if named else ""


def trained(arm: StudyArm, train_tokens: int | None) -> str:
    """`pre: 543 steps, 20 tokens per parameter, 0.3 epochs.`"""
    epochs = "" if train_tokens is None else f", {arm.tokens / train_tokens:.2g} epochs"
    per_parameter = f"{arm.length.tokens_per_parameter:.3g} tokens per parameter"
    source = f", from the checkpoint {arm.checkpoint}" if arm.checkpoint else ""
    if arm.teacher:
        source += f", {taught_by(arm.teacher)}"
    return f"{arm.name}: {arm.steps:,} steps{source}, {per_parameter}{epochs}."
