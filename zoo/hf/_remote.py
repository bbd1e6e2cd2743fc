"""Folders of models that no transformers family can express: config.json holds our spec, and a modeling file that
imports this package runs it (`_modeling.py`). This module reads such a folder without running its code."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from zoo.checkpoint import assemble, read_json
from zoo.errors import SpecError, UnsupportedError
from zoo.hf._family import check_finite
from zoo.model import Decoder
from zoo.spec import ModelSpec, parse

MODEL_TYPE = "ablate"
PREFIX = "model."
"""Prefix of our parameter names in a folder: the modeling file holds our model under it."""
CODE = "modeling_ablate.py"


def save_with_code(model: Decoder, folder: Path, context: int | None = None, end: int | None = None) -> None:
    """Write weights, config and modeling file: everything but the tokenizer.

    context: tokens of the longest text in training. end: id of the token that begins and ends a text.
    """
    spec, weights = model.spec, model.state_dict()
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"{PREFIX}{name}": value.detach().contiguous() for name, value in weights.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    shutil.copyfile(Path(__file__).with_name("_modeling.py"), folder / CODE)
    module = CODE.removesuffix(".py")
    tokens = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end}
    config = {
        "model_type": MODEL_TYPE,
        "architectures": ["AblateForCausalLM"],
        "auto_map": {"AutoConfig": f"{module}.AblateConfig", "AutoModelForCausalLM": f"{module}.AblateForCausalLM"},
        "dtype": str(model.embedding.weight.dtype).removeprefix("torch."),
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.d_model,
        "num_hidden_layers": spec.n_layers,
        "tie_word_embeddings": False,
        **({"max_position_embeddings": context} if context else {}),
        **tokens,
        "spec": spec.dump(),
    }
    for name, content in (
        ("config.json", config),
        ("generation_config.json", {**tokens, "use_cache": spec.visible != "all"}),
    ):
        (folder / name).write_text(json.dumps(content, indent=1), encoding="utf-8")


def is_one(folder: Path) -> bool:
    """Whether a folder holds such a model."""
    try:
        return bool(_config(folder).get("model_type") == MODEL_TYPE)
    except UnsupportedError:  # an invalid config is refused elsewhere
        return False


def spec_of(folder: Path) -> ModelSpec:
    """The spec in a folder's config. Raises UnsupportedError."""
    return spec_in(_config(folder).get("spec"), f"{folder / 'config.json'}: spec.")


def spec_in(data: Any, where: str = "config.spec.") -> ModelSpec:
    """The spec from a config's data. where: prefix of the error's reason. Raises UnsupportedError."""
    try:
        return parse(data)
    except (SpecError, RecursionError) as error:
        raise UnsupportedError("", f"{where}{error}") from error


def load(folder: Path) -> Decoder:
    """The model in a folder, in its tensors' dtypes. Raises UnsupportedError."""
    spec = spec_of(folder)
    tensors: dict[str, Tensor] = {}
    try:
        for path in sorted(folder.glob("*.safetensors")):
            tensors |= load_file(path)
    except (OSError, SafetensorError) as error:
        raise UnsupportedError("", f"{folder}: {error}") from error
    check_finite(tensors)
    return ours(spec, tensors, str(folder))


def ours(spec: ModelSpec, tensors: Mapping[str, Tensor], where: str) -> Decoder:
    """The model of `spec` with these tensors. Raises UnsupportedError if they do not fit."""
    try:
        return assemble(spec, {name.removeprefix(PREFIX): value for name, value in tensors.items()})
    except RuntimeError as error:  # load_state_dict names missing, unexpected and misshapen tensors
        raise UnsupportedError("", f"{where}: {' '.join(str(error).split())}") from error


class Held(nn.Module):
    """A model as the attribute that the modeling file has for it, so that adapters get the same names."""

    def __init__(self, model: Decoder) -> None:
        super().__init__()
        self.model = model


def _config(folder: Path) -> Mapping[str, object]:
    """Content of config.json; empty unless it is a map. Raises UnsupportedError if it is unreadable or too large."""
    try:
        found = read_json(folder / "config.json")
    except (OSError, SpecError) as error:
        raise UnsupportedError("", str(error)) from error
    return found if isinstance(found, dict) else {}
