"""A study from the command line: its stages planned, or one message and exit status 2."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ablate.cli import InputError
from ablate.data import DataError, prepare
from ablate.machine.numerics import enforce, pick_device
from ablate.planning.campaign import Outcome, Stages, campaign
from ablate.planning.plan import Identify, Plan, identifying, make_plan
from ablate.running.calibration import Calibration, CalibrationError
from ablate.running.engines import EngineError, Options, load
from ablate.store import Store
from ablate.study.reading import load_study
from ablate.study.study import Study, StudyError


@dataclass(frozen=True)
class Asked:
    """A study, the machine that it is planned for, and the store that knows what is done."""

    study: Study
    device: str
    matmul: str
    identify: Identify
    store: Store
    clock: Calibration | None

    def plan(self, study: Study) -> Plan:
        return make_plan(study, self.device, matmul=self.matmul, identify=self.identify, clock=self.clock)

    def stages(self) -> Stages:
        return campaign(self.study, self.plan, self.loss)

    def loss(self, digest: str) -> float | None:
        """What a run reached: infinite when it diverged, None where it has no result."""
        result = self.store.read_result(digest)
        if result is None:
            return None
        return math.inf if result["status"] == "diverged" else float(result["loss"])


def asked(options: argparse.Namespace) -> Asked:
    """What `options` ask for. Raises InputError."""
    try:
        study = load_study(options.study, options.scale, options.set)
        device = _device(options.device)
        numerics = enforce(device, study.train.dtype)
        clock = _clock(options, study, device)
        return Asked(study, device, numerics.matmul, identifying(study), Store(options.store), clock)
    except (StudyError, EngineError) as error:
        raise InputError(str(error)) from error


def refuse_namesake(study: Study, document: Mapping[str, Any] | None, store: Store) -> None:
    """Raise InputError where `document`, which holds the place of `study` in the store, is that of another file.

    A file that was moved or copied as it is remains the same study.
    """
    other = Path((document or {}).get("path", study.path))
    if document and other.exists() and not other.samefile(study.path) and document["source"] != study.text:
        raise InputError(
            f"{study.path}: the store {store.root} holds the report of {other}, a study of the same name: "
            "rename one of the two, or give another --store"
        )


def _clock(options: argparse.Namespace, study: Study, device: str) -> Calibration | None:
    """Where a budget in seconds has step times from: the store, or a measurement, which needs the corpus prepared."""
    if all(size.budget.seconds is None for size in (*study.smaller, study)):
        return None
    store = Store(options.store)

    def corpus() -> Path:
        try:
            return prepare(study.data, store.data_dir(), study.folder).directory
        except DataError as error:
            raise study.error("data", str(error)) from error

    slots = load(options.engine, Options(device, options.workers)).slots
    return Calibration(store, slots, corpus, say=lambda text: print(text, file=sys.stderr))


def foreseen(this: Asked) -> tuple[Outcome, bool]:
    """What would be planned with the results that the store has, and whether all tuning is done.

    Where it is not, arms have the settings that the study gives them. Raises InputError.
    """
    try:
        found = _outcome(this, this.study)
        if found is not None:
            return found, True
        untuned = _outcome(this, _without_tuning(this.study))
    except (StudyError, CalibrationError) as error:
        raise InputError(str(error)) from error
    if untuned is None:
        raise RuntimeError("a study without tuning has no seeds")
    return untuned, False


def _outcome(this: Asked, study: Study) -> Outcome | None:
    """The first outcome of a study's stages; None where tuning lacks a result."""
    for stage in campaign(study, this.plan, this.loss):
        if stage.outcome is not None:
            return stage.outcome
        if stage.tunes and any(this.loss(run.digest) is None for plan in stage.plans for run in plan.runs):
            break
    return None


def _without_tuning(study: Study) -> Study:
    sections = study.sections.model_copy(update={"tune": None})
    return replace(study, sections=sections, smaller=tuple(map(_without_tuning, study.smaller)))


def remarks(study: Study, tuned: bool) -> Iterator[str]:
    """What the table of a plan does not show: rounds whose number depends on results."""
    tune, auto = study.tune, study.auto_seeds
    if tune is not None and not tuned:
        count = math.prod(len(axis.ends) for axis in tune.space.values()) if tune.is_grid else tune.count
        seeds = f"{tune.seeds} seed{'' if tune.seeds == 1 else 's'}"
        more = ", more where the best is at an edge," if tune.is_grid and tune.extend else ""
        yield (
            f"before that, every arm tunes {', '.join(tune.space)}: {count} settings × {seeds}{more}"
            f" at {100 * tune.fraction:g} % of the budget"
        )
    if auto is not None:
        yield f"seeds: from {auto.start} to {auto.cap}, as many as it takes to settle every arm"


def _device(name: str | None) -> str:
    found = pick_device()
    if name == "cuda" and found != "cuda":
        raise InputError("--device cuda: torch finds no CUDA device")
    return name or found
