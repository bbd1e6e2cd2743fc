"""`ablate export`: a stored model as a transformers checkpoint."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import zoo
from ablate.cli import DONE, InputError
from ablate.commands import print_json
from ablate.commands._runs import end_token, find_run
from ablate.store import Store
from ablate.training.trained import trained_model
from zoo.errors import UnsupportedError


def export_run(options: argparse.Namespace) -> int:
    store, digest = find_run(options.run, Path(options.store))
    directory: Path = options.directory
    if directory.exists() and any(directory.iterdir()):
        raise InputError(f"{directory} is not empty")
    try:
        theirs = zoo.to_hf(trained_model(store, digest), options.family)
    except (UnsupportedError, ImportError) as error:
        raise InputError(f"{digest}: {error}") from error
    _hide_progress_bars()
    if (store.model_dir(digest) / "tokenizer.json").is_file():  # a task that is made has none
        tokenizer = _tokenizer(store, digest)
        theirs.config.bos_token_id = theirs.config.eos_token_id = tokenizer.eos_token_id
        tokenizer.save_pretrained(directory)
    theirs.save_pretrained(directory)
    family = theirs.config.model_type
    if options.json:
        print_json({"digest": digest, "directory": str(directory), "model_type": family})
    else:
        print(f"{directory}: a {family} model of transformers")
    return DONE


def _hide_progress_bars() -> None:
    from transformers.utils import logging

    logging.disable_progress_bar()


def _tokenizer(store: Store, digest: str) -> Any:
    """The run's tokenizer. A document begins and ends with the same token, as in training."""
    from transformers import PreTrainedTokenizerFast

    path = store.model_dir(digest) / "tokenizer.json"
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(path))
    eos = tokenizer.convert_ids_to_tokens(end_token(store, digest))
    tokenizer.add_special_tokens({"bos_token": eos, "eos_token": eos, "pad_token": eos})
    return tokenizer
