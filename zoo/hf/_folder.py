"""transformers checkpoints in local folders. Nothing is downloaded, and no code in a folder is run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from textwrap import shorten
from types import ModuleType
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from zoo.errors import UnsupportedError
from zoo.hf import _wrappers

CAREFULLY = {"local_files_only": True, "trust_remote_code": False}
"""Unless it is told, transformers asks on the terminal whether to run a folder's code."""
REFUSALS = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    RecursionError,
    UnpicklingError,  # weights in pickles are read without the objects that could run code
    SafetensorError,
    StrictDataclassError,
)
"""Exceptions that transformers raises for damaged or malicious folders."""


def load(folder: Path, transformers: ModuleType, auto_class: str, inner: Any = None) -> Any:
    """The model, in the types that its tensors have. Raises UnsupportedError where it would not be the one stored.

    inner: config of the language model, where the folder holds more than that.
    """
    auto = getattr(transformers, auto_class)
    part = {} if inner is None else {"config": inner, "key_mapping": _wrappers.RENAMED}
    try:
        with quiet(transformers):
            model, info = auto.from_pretrained(folder, dtype="auto", output_loading_info=True, **part, **CAREFULLY)
    except REFUSALS as error:
        raise UnsupportedError("", f"{folder}: {_said(error)}") from error
    # transformers only warns of these, and draws what is missing at random.
    if inner is not None:
        info["unexpected_keys"] = _wrappers.language_keys(info["unexpected_keys"])
    for what in ("missing_keys", "mismatched_keys", "unexpected_keys"):
        if found := sorted(map(str, info[what])):
            raise UnsupportedError(found[0], f"{what.replace('_', ' ')} in {folder}, {len(found)} in all")
    return model


@contextmanager
def quiet(transformers: ModuleType) -> Iterator[None]:
    """Without transformers' progress bars, and the warnings that errors here repeat."""
    logging = transformers.utils.logging
    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of keys that published configs have
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def config_of(folder: Path, transformers: ModuleType) -> Any:
    """The config. Raises UnsupportedError for a folder without one, and for quantised weights."""
    path = folder / "config.json"
    if not path.is_file():
        raise UnsupportedError("", f"{folder} has no config.json")
    try:
        with quiet(transformers):
            config = transformers.AutoConfig.from_pretrained(folder, **CAREFULLY)
    except REFUSALS as error:
        raise UnsupportedError("", f"{path}: {_said(error)}") from error
    if getattr(config, "quantization_config", None):
        raise UnsupportedError(
            "quantization_config", f"{path}: quantised weights cannot be converted: save them dequantised"
        )
    return config


def _said(error: Exception) -> str:
    return shorten(str(error), 200, placeholder=" …")


def without_weights(config: Any, transformers: ModuleType, auto_class: str) -> Any:
    """A model whose tensors have shapes and no storage."""
    with torch.device("meta"):
        return getattr(transformers, auto_class).from_config(config)
