"""A study from the command line: planned, or one message and exit status 2."""

from __future__ import annotations

import argparse

from ablate.cli import InputError
from ablate.numerics import enforce, pick_device
from ablate.plan import Plan, make_plan
from ablate.study import StudyError, load_study


def planned(options: argparse.Namespace) -> Plan:
    """The plan of the study that `options` name. Raises InputError."""
    try:
        study = load_study(options.study, options.scale, options.set)
        device = _device(options.device)
        numerics = enforce(device, study.train.dtype)
        return make_plan(study, device, matmul=numerics.matmul)
    except StudyError as error:
        raise InputError(str(error)) from error


def _device(asked: str | None) -> str:
    found = pick_device()
    if asked == "cuda" and found != "cuda":
        raise InputError("--device cuda: torch finds no CUDA device")
    return asked or found
