"""`ablate bench`: one model, ours and transformers'."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from typing import Any

import torch

import zoo
from ablate.cli import DONE, InputError
from ablate.commands import print_json, print_table
from ablate.machine.environment import cores
from ablate.machine.numerics import enforce, pick_device
from ablate.study.layers import setting_layer
from ablate.study.problems import StudyError
from evals.costs.bench import OURS, THEIRS, Setting, compare
from zoo.errors import SpecError, UnsupportedError
from zoo.model import Decoder

DEFAULT: dict[str, Any] = {"d_model": 512, "n_layers": 8, "vocab_size": 8192, "embedding_scale": 1.0}
"""Edits of the preset `small` that make it a Llama of about 30 M parameters."""
PHASES = {"train": "training step", "prefill": "prefill", "decode": "decoding"}
MIB = 2**20


def show(options: argparse.Namespace) -> int:
    """Measure and print. Raises InputError."""
    if find_spec("transformers") is None:
        raise InputError("bench compares with transformers, which is not installed: pip install 'ablate[hf]'")
    device = options.device or pick_device()
    enforce(device, options.dtype, cores())
    model = _model(options).to(device=device, dtype=getattr(torch, options.dtype))
    try:
        found = compare(model, Setting(options.context, options.batch, options.rounds))
    except UnsupportedError as error:
        raise InputError(f"transformers has no such model: {error}") from error
    document = {"model": options.model or "small", "edits": _edits(options), "device": device, **found}
    if options.json:
        print_json(document)
        return DONE
    print_table([("", OURS, THEIRS, "speed, theirs = 1", "memory, theirs = 1"), *_rows(document)])
    print(_explained(document))
    return DONE


def _model(options: argparse.Namespace) -> Decoder:
    try:
        return zoo.build(zoo.load(options.model or "small", **_edits(options)))
    except SpecError as error:
        raise InputError(str(error)) from error


def _edits(options: argparse.Namespace) -> dict[str, Any]:
    edits = {} if options.model else dict(DEFAULT)
    for text in options.set:
        try:
            edits |= setting_layer(text).document.data
        except StudyError as error:
            raise InputError(str(error)) from error
    return edits


def _rows(document: dict[str, Any]) -> list[tuple[str, ...]]:
    rows = []
    for phase, title in PHASES.items():
        found = document["phases"][phase]
        ratio = found["ratio"]
        grown = [found[side]["peak_growth_bytes"] for side in (OURS, THEIRS)]
        rows.append(
            (
                title,
                *(_side(found[side]) for side in (OURS, THEIRS)),
                f"{ratio['median']:.2f} ({ratio['q25']:.2f} to {ratio['q75']:.2f})",
                f"{grown[0] / grown[1]:.2f}" if all(grown) else "–",
            )
        )
    return rows


def _side(found: dict[str, Any]) -> str:
    speed, grown = found["tokens_per_second"]["median"], found["peak_growth_bytes"]
    return f"{speed:,.0f} tokens/s" + ("" if grown is None else f", {grown / MIB:,.0f} MiB")


def _explained(document: dict[str, Any]) -> str:
    threads = "" if document["device"] == "cuda" else f", threads: {document['threads']}"
    return (
        f"{document['parameters'] / 1e6:,.1f} M parameters, context {document['context']:,}, "
        f"batch {document['batch']}, {document['dtype']} on {document['device']}{threads}. "
        f"Medians of {document['rounds']} rounds by turns; in brackets the quartiles of the rounds' ratios.\n"
        "Memory: the most that was in use during the work, above what was in use before it.\n"
        f"Largest difference between their log-probabilities: {document['largest_difference']:.1e}. "
        f"transformers {document['versions']['transformers']}, torch {document['versions']['torch']}."
    )
