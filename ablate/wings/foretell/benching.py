"""`ablate.bench`: our implementation of an architecture against transformers', on this machine."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch

import zoo
from ablate.api.public import Device, Dtype
from ablate.machine.environment import own_threads
from ablate.machine.numerics import enforce, pick_device, restored
from ablate.study.written import Sets, edit_layers
from ablate.training.execution import Count
from ablate.wings.foretell.bench import BenchDocument, BenchSetting, compare
from ablate.wings.starts.checkpoints import Checkpoint
from evals.costs.machine import room_bytes
from store import AblateError
from store.errors import ArgumentError
from zoo.errors import SpecError, UnsupportedError
from zoo.settings.edits import Edits

DEFAULT: Edits = {"d_model": 512, "n_layers": 8, "vocab_size": 8192, "embedding_scale": 1.0}
"""Edits of the preset `small` that make it a Llama of about 30 M parameters."""

COPIES = 3
"""Minimum number of copies of the weights in memory: ours, transformers', and gradients."""
GIB = 2**30


@restored()
def bench(
    model: str | Path | None = None,
    *,
    sets: Sets = (),
    context: Count = 256,
    batch: Count = 4,
    rounds: Count = 5,
    dtype: Dtype = "float32",
    compile: bool = False,
    device: Device | None = None,
) -> BenchDocument:
    """Compare a training step, prefill, decoding and memory with transformers, alternating round by round.

    Args:
        model: a preset of the zoo, or the folder of a checkpoint; None: a Llama-style model of 30 M parameters.
        sets: edits of a preset by path, as in `ablate.run`.
        context: tokens per row.
        batch: rows.
        rounds: measured rounds per library.
        dtype: `float32` or `bfloat16`, of weights, cache and matmuls.
        compile: compile our training step and decoding, which takes minutes; transformers is not compiled.
        device: `cpu` or `cuda`; None: `cuda` if there is a GPU.

    Returns:
        The document that `ablate bench --json` prints.

    Raises:
        AblateError: there is no such model, here or in transformers, it does not fit in memory, or transformers is not
            installed.
        ArgumentError: `sets` are given for a checkpoint, which cannot be edited.

    Example:
        >>> ablate.bench("gpt2", sets={"n_layers": 4})["phases"]["train"]["ratio"]["median"]
    """
    if find_spec("transformers") is None:
        raise AblateError("bench compares with transformers, which is not installed: pip install transformers peft")
    where = device or pick_device()
    enforce(where, dtype, own_threads())
    edits = {} if model else dict(DEFAULT)
    for layer in edit_layers(sets):
        edits |= layer.document.data
    _check_memory(str(model or "small"), edits, where, dtype)
    built = _built(str(model or "small"), edits).to(device=where, dtype=getattr(torch, dtype))
    try:
        found = compare(built, BenchSetting(context, batch, rounds, compile))
    except UnsupportedError as error:
        raise AblateError(f"transformers has no such model: {error}") from error
    return {"model": str(model or "small"), "edits": edits, "device": where, **found}


def _check_memory(name: str, edits: Edits, device: str, dtype: str) -> None:
    """Raise AblateError if two copies of a preset's weights and one of gradients exceed the memory."""
    if Path(name).is_dir():
        return
    try:
        parameters = zoo.cost(zoo.load(name, **edits)).params
    except SpecError as error:
        raise AblateError(str(error)) from error
    needed, there = COPIES * parameters * getattr(torch, dtype).itemsize, room_bytes(device)
    if needed > there:
        free = " free" if device == "cuda" else ""
        reason = f"needs at least {needed / GIB:,.0f} GiB, but {device} has {there / GIB:,.0f} GiB{free}"
        raise AblateError(f"{name} with {parameters / 1e9:.1f} B parameters {reason}: try --set n_layers=2")


def _built(name: str, edits: Edits) -> zoo.Decoder:
    """A preset with initial weights, or the checkpoint in a folder."""
    if Path(name).is_dir():
        if edits:
            raise ArgumentError("sets", "only presets can be edited, not a checkpoint")
        return Checkpoint.at(name, Path()).load()
    try:
        return zoo.build(zoo.load(name, **edits))
    except SpecError as error:
        raise AblateError(str(error)) from error
