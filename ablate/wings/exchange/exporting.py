"""`ablate.export`: a trained run as a transformers checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import zoo
from ablate.training.session import initial_model
from ablate.training.spec import TrainSpec
from ablate.training.trained import trained_model
from ablate.wings.exchange.model_card import read_card
from ablate.wings.named.runs import end_token, find_run
from ablate.wings.starts.lora import LoraSpec, saved_adapters
from evals.reading.passes import obstacle
from store import Store, StoreError, write_text
from store.documents import RunDocument
from store.errors import ArgumentError
from zoo.errors import UnsupportedError
from zoo.hf import REMOTE, native, save_adapters, save_with_code


def export(
    run: str | Path,
    directory: str | Path,
    *,
    family: str | None = None,
    adapter: bool = False,
    push: str | None = None,
    store: str | Path = "runs",
) -> dict[str, str]:
    """Write the model of a run as a transformers checkpoint, with its tokenizer and a model card.

    If no transformers family expresses the model, the folder has a modeling file that imports this package:
    transformers opens it with `trust_remote_code=True` where ablate is installed.

    Args:
        run: the digest of a run in the store, or the beginning of one, or its place in a study (`my_study/swiglu`, for
            the first seed; `my_study/swiglu/2`), or its folder, or the name of an imported model.
        directory: a new or empty folder, which transformers' `from_pretrained` then opens.
        family: a `model_type` of transformers; None: the first that fits.
        adapter: write the low-rank adapter of a run with `train.lora` in peft's format, with its base model in
            `directory/base`, instead of merging the two.
        push: a repository of the Hugging Face hub, `USER/NAME`, to upload the folder to; a new one is private.
        store: the store's folder; not needed if `run` is a folder.

    Returns:
        `digest`, `directory` and `model_type`. For a model with our own modeling file, `model_type` is `ablate`, and
        `reason` says why no family expresses it.

    Raises:
        StoreError: there is no such run, or its model cannot be opened by transformers at all.
        ArgumentError: the folder is not empty, `adapter` is set for a run that trained all weights, or the hub cannot
            be reached.

    Example:
        >>> ablate.export("3f2a", "checkpoint")["model_type"]
        'llama'
    """
    place, found = find_run(run, store)
    target = Path(directory)
    if target.exists() and any(target.iterdir()):
        raise ArgumentError("directory", f"{target} is not empty")
    card = read_card(place, found, adapter)
    try:
        model_type, reason = _written(place, found, target, family, adapter)
    except (UnsupportedError, ImportError) as error:
        raise StoreError(f"{found.digest}: {error}") from error
    write_text(target / "README.md", card.text(model_type))
    if push is not None:
        _upload(target, push)
    answer = {"digest": found.digest, "directory": str(target), "model_type": model_type}
    return answer | ({"reason": reason} if reason else {})


def _written(store: Store, run: RunDocument, target: Path, family: str | None, adapter: bool) -> tuple[str, str]:
    """Write the checkpoint. Returns its `model_type`, and why no family expresses the model (empty if one does)."""
    end = end_token(store, run) if store.tokenizer_path(run.digest).is_file() else None  # a synthetic task has none
    reason = ""
    if adapter:
        model_type = _write_adapter(store, run, target)
    else:
        model: zoo.Decoder = trained_model(store, run.digest)
        chosen, reason = (family, "") if family else native(model)
        model_type = chosen or REMOTE
        if chosen is None:
            if obstructed := obstacle(model.spec):
                only = "and ablate's own modeling file supports only causal models"
                raise UnsupportedError("", f"the model {obstructed}: no family of transformers expresses it, {only}")
            save_with_code(model, target, context=TrainSpec.of(run).context, end=end)
        else:
            theirs = zoo.to_hf(model, family)
            from transformers.utils import logging  # noqa: PLC0415 (slow to load; to_hf reports it if missing)

            logging.disable_progress_bar()
            if end is not None:
                theirs.config.bos_token_id = theirs.config.eos_token_id = end
            theirs.save_pretrained(target)
    if end is not None:
        for folder in (target, target / "base") if adapter else (target,):
            _tokenizer(store, run, end).save_pretrained(folder)
    return model_type, reason


def _write_adapter(store: Store, run: RunDocument, target: Path) -> str:
    """Write the adapter and its base. Returns the base's `model_type`. Raises ArgumentError without an adapter."""
    lora = TrainSpec.of(run).part
    if not isinstance(lora, LoraSpec):
        raise ArgumentError("adapter", f"{run.digest} trained all weights, so it has no adapter")
    tensors = saved_adapters(store.model_dir(run.digest))
    names = [name.removesuffix(".down") for name in tensors if name.endswith(".down")]
    pairs = {name: (tensors[f"{name}.down"], tensors[f"{name}.up"]) for name in names}
    return save_adapters(initial_model(store, run), pairs, lora.alpha, target)


def _tokenizer(store: Store, run: RunDocument, end: int) -> Any:
    """The run's tokenizer. A document begins and ends with the same token, as in training."""
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415 (slow to load)

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(store.tokenizer_path(run.digest)))
    eos = tokenizer.convert_ids_to_tokens(end)
    tokenizer.add_special_tokens({"bos_token": eos, "eos_token": eos, "pad_token": eos})
    return tokenizer


def _upload(folder: Path, repository: str) -> None:
    """Upload a folder to `USER/NAME`, created as a private repository if it is missing. Raises ArgumentError."""
    from huggingface_hub import HfApi  # noqa: PLC0415 (slow to load)
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError  # noqa: PLC0415

    api = HfApi()
    # The error of the HTTP client that huggingface_hub uses is a base of its own error.
    refusals: tuple[type[Exception], ...] = (HFValidationError, OSError, *HfHubHTTPError.__bases__)
    try:
        api.create_repo(repository, private=True, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=str(folder), commit_message="Exported by ablate")
    except refusals as error:
        said = str(error).strip().partition("\n")[0]
        upload = f"`hf auth login` and `hf upload {repository} {folder} --private`"
        reason = f"{said}: {folder} is written; once the hub can be reached, upload it with {upload}"
        raise ArgumentError("push", reason, repository) from error
