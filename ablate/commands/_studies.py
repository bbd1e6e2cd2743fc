"""A study from the command line: planned, or one message and exit status 2."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ablate.calibration import Calibration, CalibrationError
from ablate.cli import InputError
from ablate.data import DataError, prepare
from ablate.engines import EngineError, Options, load
from ablate.numerics import enforce, pick_device
from ablate.plan import Plan, make_plan
from ablate.store import Store
from ablate.study import Study, StudyError, load_study


def planned(options: argparse.Namespace) -> Plan:
    """The plan of the study that `options` name. Raises InputError."""
    try:
        study = load_study(options.study, options.scale, options.set)
        device = _device(options.device)
        numerics = enforce(device, study.train.dtype)
        return make_plan(study, device, matmul=numerics.matmul, clock=_clock(options, study, device))
    except (StudyError, CalibrationError, EngineError) as error:
        raise InputError(str(error)) from error


def _clock(options: argparse.Namespace, study: Study, device: str) -> Calibration | None:
    """Where a budget in seconds has step times from: the store, or a measurement, which needs the corpus prepared."""
    if study.budget.seconds is None:
        return None
    store = Store(options.store)

    def corpus() -> Path:
        try:
            return prepare(study.data, store.data_dir(), study.folder).directory
        except DataError as error:
            raise study.error("data", str(error)) from error

    slots = load(options.engine, Options(device, options.workers)).slots
    return Calibration(store, slots, corpus, say=lambda text: print(text, file=sys.stderr))


def _device(asked: str | None) -> str:
    found = pick_device()
    if asked == "cuda" and found != "cuda":
        raise InputError("--device cuda: torch finds no CUDA device")
    return asked or found
