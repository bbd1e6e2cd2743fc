"""Shared code of engines whose workers are on this machine."""

from __future__ import annotations

from ablate.errors import ArgumentError
from ablate.machine.numerics import pick_device
from ablate.running.engines import EngineError
from ablate.running.options import Options


def device_here(options: Options) -> str:
    """The device named, or the best there is. Raises EngineError for settings: there are none."""
    if options.engine_settings:
        raise EngineError(f"this engine has no settings: {', '.join(options.engine_settings)}")
    found = pick_device()
    if options.device == "cuda" != found:
        raise ArgumentError("device", "torch finds no CUDA device", options.device)
    return options.device or found
