"""`ablate run --promote`: a study that confirms the factors that lowered the loss, alone and together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from ablate.study.study import Study
from ablate.study.yamlfile import StudyMap
from ablate.wings.designs.design_spec import DesignKeys
from ablate.wings.promoting import confirming, refuse_edited, write_study
from reports.judge.findings.study_summary import StudySummary
from store.errors import ArgumentError
from zoo.settings.edits import merge

SEEDS = 5
TOGETHER = "together"


def refuse_promotion(study: Study, path: str | Path) -> None:
    """Raise ArgumentError if the study has no design, or the file would replace the study or somebody's edits."""
    if not study.factors:
        raise ArgumentError("promote", f"{study.name} has no design: only a screen of factors has effects to confirm")
    if study.path is not None and Path(path).resolve() == study.path.resolve():
        raise ArgumentError("promote", "is the study's own file: name another", str(path))
    refuse_edited(Path(path))


def promote(study: Study, summary: StudySummary, path: str | Path) -> Path | None:
    """Write the confirming study; None if no effect has the verdict `better`.

    An interaction with that verdict becomes an arm with all its factors. The seeds follow those of the screen.
    """
    survivors = [each.effect.factors for each in summary.effects if each.verdict == "better"]
    if not survivors:
        return None
    arms = {"+".join(factors): _edits(study, factors) for factors in survivors}
    every = [name for name in study.factors if any(name in factors for factors in survivors)]
    if "+".join(every) not in arms:
        arms[TOGETHER] = _edits(study, every)
    first = 1 + max(run.seed for arm in summary.study.arms for run in arm.runs)
    question = f"Do the effects that the screen {study.name} found hold with fresh seeds?"
    comment = f"Effects that lowered the loss in the screen {study.name}, at scale {study.scale}, with other seeds."
    document = confirming(study, question, arms, range(first, first + SEEDS))
    return write_study(Path(path), comment, document)


def _edits(study: Study, factors: Sequence[str]) -> StudyMap:
    nothing: Any = {}
    assert isinstance(study.sections, DesignKeys)
    return dict(reduce(merge, (study.sections.factors[name] for name in factors), nothing))
