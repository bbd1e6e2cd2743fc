"""GPUs of this machine that a study's runs may use: those of one kind, which is part of the runs' identity.

Losses differ between kinds in their last digits, and speeds by more. CUDA_VISIBLE_DEVICES chooses another kind, whose
runs have an identity of their own.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import torch


class Gpu(NamedTuple):
    """number: torch's index, in this process. place: its entry in CUDA_VISIBLE_DEVICES. kind: its name."""

    number: int
    place: str
    kind: str


def visible_gpus() -> list[Gpu]:
    """All GPUs that this process may use."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    places = named.split(",")[:count] if named else map(str, range(count))
    return [Gpu(number, place, torch.cuda.get_device_name(number)) for number, place in enumerate(places)]


def alike_gpus() -> list[Gpu]:
    """The visible GPUs of the same kind as the first."""
    found = visible_gpus()
    return [gpu for gpu in found if gpu.kind == found[0].kind]


def unlike_gpus() -> str | None:
    """Why some GPUs are not used; None if all are of one kind."""
    found = visible_gpus()
    others = [gpu for gpu in found if gpu.kind != found[0].kind]
    if not others:
        return None
    kinds, places = ", ".join(dict.fromkeys(gpu.kind for gpu in others)), ",".join(gpu.place for gpu in others)
    return (
        f"Runs of a study use GPUs of one kind, here {found[0].kind}. Left out: {kinds}"
        f" (set CUDA_VISIBLE_DEVICES={places} to use these instead)."
    )
