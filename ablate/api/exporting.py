"""`ablate.export`: a trained run as a transformers checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import zoo
from ablate.api.runs import end_token, find_run
from ablate.errors import ArgumentError
from ablate.store import Store, StoreError
from ablate.store.documents import RunDocument
from ablate.training.lora import saved_adapters
from ablate.training.session import initial_model
from ablate.training.spec import TrainSpec
from ablate.training.trained import trained_model
from zoo.errors import UnsupportedError
from zoo.hf import save_adapters


def export(
    run: str | Path,
    directory: str | Path,
    *,
    family: str | None = None,
    adapter: bool = False,
    store: str | Path = "runs",
) -> dict[str, str]:
    """Write the model of a trained run as a transformers checkpoint, with its tokenizer.

    Args:
        run: the digest of a run in the store, or the beginning of one, or the folder of a run.
        directory: a new or empty folder, which transformers' `from_pretrained` then opens.
        family: a `model_type` of transformers; None: the first that fits.
        adapter: write the low-rank adapter of a run with `train.lora` as peft stores it, and in `directory/base` the
            model that it belongs to, instead of both merged.
        store: the store's folder; not needed if `run` is a folder.

    Returns:
        `digest`, `directory` and `model_type`.

    Raises:
        StoreError: there is no such run, or transformers has no such architecture, and what stands in the way.
        ArgumentError: the folder is not empty, or an adapter is asked for of a run that trained all weights.

    Example:
        >>> ablate.export("3f2a", "checkpoint")["model_type"]
        'llama'
    """
    place, found = find_run(run, store)
    digest = found.digest
    target = Path(directory)
    if target.exists() and any(target.iterdir()):
        raise ArgumentError("directory", f"{target} is not empty")
    try:
        if adapter:
            return {"digest": digest, "directory": str(target), "model_type": _write_adapter(place, found, target)}
        theirs = zoo.to_hf(trained_model(place, digest), family)
    except (UnsupportedError, ImportError) as error:
        raise StoreError(f"{digest}: {error}") from error
    _hide_progress_bars()
    if place.tokenizer_path(digest).is_file():  # a synthetic task has none
        tokenizer = _tokenizer(place, found)
        theirs.config.bos_token_id = theirs.config.eos_token_id = tokenizer.eos_token_id
        tokenizer.save_pretrained(target)
    theirs.save_pretrained(target)
    return {"digest": digest, "directory": str(target), "model_type": theirs.config.model_type}


def _write_adapter(store: Store, run: RunDocument, target: Path) -> str:
    """Returns the base's `model_type`."""
    lora = TrainSpec.model_validate(run.train).lora
    if lora is None:
        raise ArgumentError("adapter", f"{run.digest} trained all weights, so it has no adapter")
    tensors = saved_adapters(store.model_dir(run.digest))
    names = [name.removesuffix(".down") for name in tensors if name.endswith(".down")]
    pairs = {name: (tensors[f"{name}.down"], tensors[f"{name}.up"]) for name in names}
    model_type = save_adapters(initial_model(store, run), pairs, lora.alpha, target)
    if store.tokenizer_path(run.digest).is_file():
        _tokenizer(store, run).save_pretrained(target)
    return model_type


def _hide_progress_bars() -> None:
    from transformers.utils import logging  # noqa: PLC0415 (slow to load)

    logging.disable_progress_bar()


def _tokenizer(store: Store, run: RunDocument) -> Any:
    """The run's tokenizer. A document begins and ends with the same token, as in training."""
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415 (slow to load)

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(store.tokenizer_path(run.digest)))
    eos = tokenizer.convert_ids_to_tokens(end_token(store, run))
    tokenizer.add_special_tokens({"bos_token": eos, "eos_token": eos, "pad_token": eos})
    return tokenizer
