"""Training inputs and lengths of a study's arms, in words."""

from __future__ import annotations

import json
from collections.abc import Iterator

from reports.judge.findings.study_summary import ArmSummary, StudySummary
from reports.judge.reading.inputs import Inputs
from reports.judge.sentences import listed, prefixed_range
from reports.page.wording.rate_words import rates
from store.documents import StudyArm, StudyDocument, length
from store.documents.study_arm import taught_by

SOURCES = {
    "prose": "English prose",
    "stdlib": "Python's standard library",
    "files": "the study’s own text files",
    "tokens": "the study’s own token files",
    "mixture": "a mixture of texts",
}
"""Sources whose names do not explain themselves. Other sources are data sets and synthetic tasks."""


def inputs(found: Inputs) -> Iterator[str]:
    """`English prose`, `vocabulary 1,024`, `context 128`, as far as known."""
    if found.sources:
        yield " and ".join(map(source, found.sources))
    for name, values in (("vocabulary", found.vocabularies), ("context", found.contexts)):
        if values:
            yield f"{name} {' to '.join(dict.fromkeys(f'{each:,}' for each in (values[0], values[-1])))}"


def source(name: str) -> str:
    return SOURCES.get(name, name)


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
    epochs = "" if not train_tokens else f", {arm.tokens / train_tokens:.2g} epochs"
    per_parameter = f"{arm.length.tokens_per_parameter:.3g} tokens per parameter"
    source = f", from the checkpoint {arm.checkpoint}" if arm.checkpoint else ""
    if arm.teacher:
        source += f", {taught_by(arm.teacher)}"
    return f"{arm.name}: {arm.steps:,} steps{source}, {per_parameter}{epochs}."


MATCHED = {"flops": "FLOPs", "seconds": "training time"}


def matched(summary: StudySummary) -> str:
    return f"at equal {' and '.join(MATCHED.get(part, part) for part in summary.study.matched.split(' and '))}"


def terms(summary: StudySummary, arm: ArmSummary) -> str:
    """`at equal FLOPs`, or the tokens that an arm started from another spent beyond that arm's training."""
    source = dict(arm.edits).get("start.arm")
    if source is None:
        return matched(summary)
    share = 100 * arm.planned.tokens / summary.baseline_arm.planned.tokens
    return f"after {share:.3g} % of the baseline’s tokens, on top of the training of {json.loads(source)}"


def but_for(summary: StudySummary) -> str:
    """Exception for the arms to which `matched` does not apply."""
    found = [arm.name for arm in summary.arms if "start.arm" in dict(arm.edits)]
    return f", except {listed(found)}, which started from another arm" if found else ""


def continued(summary: StudySummary) -> str:
    """`continuing from trained` if all compared arms start from one arm; else empty."""
    sources = {dict(arm.edits).get("start.arm") for arm in summary.arms if arm.name != summary.baseline}
    (source,) = sources if len(sources) == 1 else (None,)
    return f"continuing from {json.loads(source)}" if source else ""
