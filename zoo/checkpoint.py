"""A model in a folder: spec.json and weights.safetensors, and origin.json for one that came from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from zoo.errors import SpecError
from zoo.model import Decoder
from zoo.spec import ModelSpec, parse


def save(model: Decoder, directory: str | Path) -> None:
    """Write the spec and the weights, under their parameter names."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    weights = {name: value.detach().contiguous() for name, value in model.state_dict().items()}
    save_file(weights, directory / "weights.safetensors")
    (directory / "spec.json").write_text(json.dumps(model.spec.dump(), indent=1), encoding="utf-8")
    if model.origin is not None:
        (directory / "origin.json").write_text(json.dumps(model.origin, indent=1), encoding="utf-8")


def open_model(directory: str | Path, device: str = "cpu") -> Decoder:
    """The model that `save` wrote. Raises FileNotFoundError where it wrote none."""
    directory = Path(directory)
    if not (directory / "spec.json").exists():
        raise FileNotFoundError(f"{directory} holds no saved model: it has no spec.json")
    try:
        spec = parse(json.loads((directory / "spec.json").read_text(encoding="utf-8")))
    except RecursionError as error:
        raise SpecError("", f"{directory / 'spec.json'}: nested too deeply") from error
    with safe_open(directory / "weights.safetensors", framework="pt", device=device) as file:
        # Copied, because a file's tensors begin at any byte, and the CPU's products round by where they begin.
        weights = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    model = assemble(spec, weights)
    origin = directory / "origin.json"
    if origin.exists():
        model.origin = json.loads(origin.read_text(encoding="utf-8"))
    return model


def assemble(spec: ModelSpec, weights: Mapping[str, Tensor]) -> Decoder:
    """A model made of these very tensors, in evaluation mode."""
    with torch.device("meta"):
        model = Decoder(spec)
    model.load_state_dict(weights, assign=True)
    return model.eval()
