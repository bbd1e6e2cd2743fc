"""Saved models: a folder with spec.json and weights.safetensors; a converted model adds origin.json and its tokenizer
files."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from zoo.errors import SpecError
from zoo.model import Decoder
from zoo.settings.identity import TokenizerFiles
from zoo.spec import ModelSpec, parse

MOST_BYTES = 10_000_000
"""Maximum size of a spec or config file, in bytes."""
TOKENIZER = "tokenizer.json"
BESIDE_TOKENIZER = ("tokenizer_config.json", "special_tokens_map.json")
"""Files that transformers writes alongside the tokenizer; they name the end-of-text token."""


def save(model: Decoder, directory: str | Path) -> None:
    """Write the spec, the weights by parameter name, and the origin and tokenizer files that the model has."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    weights = {name: value.detach().contiguous() for name, value in model.state_dict().items()}
    path = directory / "weights.safetensors"
    save_file(weights, path)
    (directory / "spec.json").write_text(json.dumps(model.spec.dump(), indent=1), encoding="utf-8")
    path.chmod(stat.S_IMODE((directory / "spec.json").stat().st_mode))  # safetensors makes files private to their owner
    if model.origin is not None:
        (directory / "origin.json").write_text(json.dumps(model.origin, indent=1), encoding="utf-8")
    for name, text in (model.tokenizer or {}).items():
        (directory / name).write_text(text, encoding="utf-8")


def open_model(directory: str | Path, device: str = "cpu") -> Decoder:
    """Load the model that `save` wrote, in evaluation mode. Raises FileNotFoundError if spec.json or the weights are
    missing, SpecError if a file is damaged."""
    directory = Path(directory)
    if not (directory / "spec.json").exists():
        raise FileNotFoundError(f"{directory} holds no saved model: it has no spec.json")
    spec, path = parse(read_json(directory / "spec.json")), directory / "weights.safetensors"
    try:
        with safe_open(path, framework="pt", device=device) as file:
            # Cloned, because tensors in a file are unaligned, and the alignment changes how CPU products round.
            weights = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise SpecError("", f"{path}: {error}") from error
    try:
        model = assemble(spec, weights)
    except RuntimeError as error:  # load_state_dict names missing, unexpected and misshapen tensors
        raise SpecError("", f"{path}: {' '.join(str(error).split())}") from error
    origin = directory / "origin.json"
    if origin.exists():
        model.origin = read_json(origin)
    model.tokenizer = tokenizer_files(directory)
    return model


def read_json(path: Path) -> Any:
    """Parse a JSON file. Raises SpecError if it is invalid, larger than `MOST_BYTES`, or not a regular file."""
    if path.exists() and not path.is_file():  # reading a pipe would block until someone writes to it
        raise SpecError("", f"{path} is not a regular file")
    with path.open("rb") as file:
        text = file.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise SpecError("", f"{path} has more than {MOST_BYTES:,} bytes")
    try:
        return json.loads(text)
    except RecursionError as error:
        raise SpecError("", f"{path}: nested too deeply") from error
    except ValueError as error:
        raise SpecError("", f"{path}: {error}") from error


def tokenizer_files(directory: Path) -> TokenizerFiles | None:
    """Tokenizer files in a folder, by name; None without a tokenizer.json."""
    if not (directory / TOKENIZER).is_file():
        return None
    found = (directory / name for name in (TOKENIZER, *BESIDE_TOKENIZER))
    return {path.name: _text_of(path) for path in found if path.is_file()}


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SpecError("", f"{path} is not UTF-8: {error.reason} at byte {error.start:,}") from error


def assemble(spec: ModelSpec, weights: Mapping[str, Tensor]) -> Decoder:
    """A model that uses these tensors without copying them, in evaluation mode. Raises RuntimeError if they do not
    match the spec's parameters."""
    with torch.device("meta"):
        model = Decoder(spec)
    model.load_state_dict(weights, assign=True)
    return model.eval()
