"""transformers checkpoints in local folders. Nothing is downloaded, and no code in a folder is run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from textwrap import shorten
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from zoo.checkpoint import read_json
from zoo.errors import SpecError, UnsupportedError
from zoo.hf import _wrappers
from zoo.hf._version import transformers_module

CAREFULLY = {"local_files_only": True, "trust_remote_code": False}
"""Unless it is told, transformers asks on the terminal whether to run a folder's code."""
REFUSALS = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    RuntimeError,
    RecursionError,
    AttributeError,
    AssertionError,
    UnpicklingError,  # weights in pickles are read without the objects that could run code
    SafetensorError,
    StrictDataclassError,
)
"""Exceptions that transformers raises for damaged or malicious folders."""


def load(folder: Path, auto_class: str, inner: Any = None) -> Any:
    """The model, in the types that its tensors have. Raises UnsupportedError where it would not be the one stored.

    inner: config of the language model, where the folder holds more than that.
    """
    _check_index(folder)
    auto = getattr(transformers_module(), auto_class)
    part = {} if inner is None else {"config": inner, "key_mapping": _wrappers.RENAMED}
    try:
        with quiet():
            # Sizes that differ are reported below, by name.
            reported = {"output_loading_info": True, "ignore_mismatched_sizes": True}
            model, info = auto.from_pretrained(folder, dtype="auto", **reported, **part, **CAREFULLY)
    except REFUSALS as error:
        raise UnsupportedError("", f"{folder}: {one_line(error)}") from error
    for name, found, expected in sorted(info["mismatched_keys"]):
        sizes = f"{tuple(found)} in {folder}, and {tuple(expected)} by its config.json"
        resized = found[1:] == expected[1:] and expected[0] == model.config.vocab_size
        raise UnsupportedError(name, f"has the shape {sizes}" + (f": set vocab_size to {found[0]}" if resized else ""))
    # transformers only warns of these, and draws what is missing at random.
    if inner is not None:
        info["unexpected_keys"] = _wrappers.language_keys(info["unexpected_keys"])
    for what in ("missing_keys", "unexpected_keys"):
        if keys := sorted(map(str, info[what])):
            raise UnsupportedError(keys[0], f"{what.replace('_', ' ')} in {folder}, {len(keys)} in all")
    return model


def _check_index(folder: Path) -> None:
    """Raise UnsupportedError for an index of weights in files that are not beside it."""
    for path in sorted(folder.glob("*.index.json")):
        try:
            index = read_json(path)
        except (OSError, SpecError) as error:
            raise UnsupportedError("", str(error)) from error
        files = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
            raise UnsupportedError("weight_map", f"{path} does not say which file holds which tensor")
        for name in files.values():
            if Path(name).name != name:
                raise UnsupportedError("weight_map", f"{path} names {name!r}, which is not a file beside it")


@contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' progress bars, warnings that errors repeat, and torch's of matrices without features."""
    logging = transformers_module().utils.logging
    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of keys that published configs have
            warnings.filterwarnings("ignore", "Initializing zero-element tensors")  # where no expert is shared
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def config_of(folder: Path) -> Any:
    """The config. Raises UnsupportedError for a folder without one, and for quantised weights."""
    path = folder / "config.json"
    if not path.is_file():
        raise UnsupportedError("", f"{folder} has no config.json")
    try:
        with quiet():
            config = transformers_module().AutoConfig.from_pretrained(folder, **CAREFULLY)
    except REFUSALS as error:
        raise UnsupportedError("", f"{path}: {one_line(error)}") from error
    if getattr(config, "quantization_config", None):
        raise UnsupportedError(
            "quantization_config", f"{path}: quantised weights cannot be converted: save them dequantised"
        )
    return config


def one_line(error: Exception) -> str:
    """An error's text in one line, cut where it is long."""
    return shorten(" ".join(str(error).split()), 200, placeholder=" …")


def without_weights(config: Any, auto_class: str) -> Any:
    """A model whose tensors have shapes and no storage."""
    try:
        with torch.device("meta"):
            return getattr(transformers_module(), auto_class).from_config(config)
    except REFUSALS as error:
        raise UnsupportedError("", f"transformers cannot build it: {one_line(error)}") from error
