"""Fingerprints of models: whose answers a file holds (`ablate.store.answers`)."""

from __future__ import annotations

import hashlib

import torch

from zoo.model import Decoder
from zoo.settings.identity import canonical


def fingerprint(model: Decoder) -> str:
    """sha256 over the spec and every weight of a model: two checkpoints have one only where they compute the same."""
    digest = hashlib.sha256(canonical(model.spec.identity()).encode())
    for name, value in sorted(model.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
