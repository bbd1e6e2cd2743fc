"""Uploading a folder to the Hugging Face hub, where that is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ablate.errors import ArgumentError


def upload(folder: Path, repository: str, hub: Any = None) -> None:
    """Upload a folder to `USER/NAME`, which is made first, private, where it does not exist.

    hub: what has the methods of `huggingface_hub.HfApi`; None for that one. Raises ArgumentError.
    """
    from huggingface_hub import HfApi  # noqa: PLC0415 (slow to load)
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError  # noqa: PLC0415

    api = hub or HfApi()
    # Errors of whichever HTTP client huggingface_hub uses are bases of its own error.
    refusals: tuple[type[Exception], ...] = (HFValidationError, OSError, *HfHubHTTPError.__bases__)
    try:
        api.create_repo(repository, private=True, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=str(folder), commit_message="Exported by ablate")
    except refusals as error:
        said = str(error).strip().partition("\n")[0]
        upload = f"`hf auth login` and `hf upload {repository} {folder} --private`"
        reason = f"{said}: {folder} is written; where the hub can be reached, {upload} do the rest"
        raise ArgumentError("push", reason, repository) from error
