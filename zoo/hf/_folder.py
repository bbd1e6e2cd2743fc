"""transformers checkpoints in local folders. Nothing is downloaded, and no code in a folder is run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
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
from zoo.hf._config import transformers_module

PLAIN = "eager"
"""Attention with which transformers builds a model, whatever its config says: it has no bearing on weights, and another
may need a package, a GPU or a download."""
CAREFULLY = {"local_files_only": True, "trust_remote_code": False}
"""Arguments against downloads and code execution: by default, transformers asks on the terminal to run code."""
REFUSALS = (
    OSError,
    ImportError,  # the message names the package to install
    ValueError,
    TypeError,
    LookupError,
    RuntimeError,
    RecursionError,
    AttributeError,
    AssertionError,
    UnpicklingError,  # pickled weights are read without objects that could run code
    SafetensorError,
    StrictDataclassError,
)
"""Exceptions that transformers raises for damaged or malicious folders, and where a package is missing."""


def load(folder: Path, kind: Any, config: Any, needed: Callable[[Any, Iterable[str]], list[str]] | None = None) -> Any:
    """The model in a folder, in its tensors' dtypes. Raises UnsupportedError if it would differ from the stored model.

    kind: transformers' class, or auto class. needed: those of a model's weights that must be there; None for all.
    """
    _check_index(folder)
    try:
        with quiet():
            # Mismatched shapes are reported below, by name.
            reported = {"output_loading_info": True, "ignore_mismatched_sizes": True}
            model, info = kind.from_pretrained(folder, config=config, dtype="auto", **reported, **CAREFULLY)
    except REFUSALS as error:
        raise UnsupportedError("", f"{folder}: {one_line(error)}") from error
    for name, found, expected in sorted(info["mismatched_keys"]):
        sizes = f"{tuple(found)} in {folder}, but {tuple(expected)} by its config.json"
        resized = found[1:] == expected[1:] and expected[0] == model.config.vocab_size
        raise UnsupportedError(name, f"has the shape {sizes}" + (f": set vocab_size to {found[0]}" if resized else ""))
    # transformers only warns about these, and draws missing tensors at random.
    for what in ("missing from", "unexpected in"):
        keys = sorted(map(str, info[f"{what.split()[0]}_keys"]))
        if keys := needed(model, keys) if needed else keys:
            raise UnsupportedError(keys[0], f"{what} {folder} ({len(keys)} in total)")
    return model


def _check_index(folder: Path) -> None:
    """Raise UnsupportedError for a weight index that is invalid or names files outside its folder."""
    for path in sorted(folder.glob("*.index.json")):
        try:
            index = read_json(path)
        except (OSError, SpecError) as error:
            raise UnsupportedError("", str(error)) from error
        files = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
            raise UnsupportedError("weight_map", f"{path} must map tensor names to file names")
        for name in files.values():
            if Path(name).name != name:
                raise UnsupportedError("weight_map", f"{path} names {name!r}, which is not in the same folder")


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress transformers' progress bars and warnings, which errors repeat, and torch's about empty matrices."""
    logging = transformers_module().utils.logging
    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about keys of published configs
            warnings.filterwarnings("ignore", "Initializing zero-element tensors")  # without shared experts
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def config_of(folder: Path) -> Any:
    """The folder's config. Raises UnsupportedError for a missing or invalid one, and for quantised weights."""
    path = folder / "config.json"
    if not path.is_file():
        raise UnsupportedError("", f"{folder} has no config.json")
    try:
        with quiet():
            config = transformers_module().AutoConfig.from_pretrained(folder, **CAREFULLY)
    except REFUSALS as error:
        raise UnsupportedError("", f"{path}: {one_line(error)}") from error
    config._attn_implementation = PLAIN
    if getattr(config, "quantization_config", None):
        raise UnsupportedError(
            "quantization_config", f"{path}: quantised weights cannot be converted: save them dequantised"
        )
    return config


def one_line(error: Exception) -> str:
    """An error's text in one line, cut to 200 characters."""
    return shorten(" ".join(str(error).split()), 200, placeholder=" …")


def without_weights(config: Any, build: Callable[[Any], Any]) -> Any:
    """A model on the meta device: its tensors have shapes but no storage. Raises UnsupportedError."""
    try:
        with torch.device("meta"):
            return build(config)
    except REFUSALS as error:
        raise UnsupportedError("", f"transformers cannot build it: {one_line(error)}") from error
