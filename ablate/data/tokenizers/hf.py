"""A tokenizer on the Hugging Face Hub."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from logging import ERROR
from pathlib import Path
from typing import Literal

from tokenizers import Tokenizer

from ablate.data.tokenizers._loaded import LoadedTokenizer, tokenizer_of
from store.errors import DataError


class HfTokenizer(LoadedTokenizer):
    """The `tokenizer.json` of a repository, by name. Fetched once, then read from the local cache of the hub.

    The tokenizer is identified by the file's content: the same file as `{kind: file, path: …}` is the same tokenizer.
    """

    kind: Literal["hf"] = "hf"
    name: str
    """Repository on the hub with a `tokenizer.json`: `HuggingFaceTB/SmolLM2-135M`."""
    revision: str | None = None
    """Branch, tag or commit; null for the newest."""

    @property
    def named(self) -> str:
        return self.name

    def content(self, base: Path) -> str:
        return hashlib.sha256(_fetched(self.name, self.revision)).hexdigest()

    def loaded(self, base: Path) -> Tokenizer:
        return tokenizer_of(_fetched(self.name, self.revision), f"tokenizer.name: tokenizer.json of {self.name}")


@lru_cache
def _fetched(name: str, revision: str | None) -> bytes:
    """Content of the file, fetched once per process. Raises DataError."""
    from huggingface_hub import hf_hub_download  # noqa: PLC0415 (needed by this tokenizer only)
    from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415
    from huggingface_hub.utils import logging  # noqa: PLC0415

    # huggingface_hub's own error derives from the error of its HTTP client (requests or httpx): catch those bases.
    refusals: tuple[type[Exception], ...] = (OSError, ValueError, *HfHubHTTPError.__bases__)
    level = logging.get_verbosity()
    logging.set_verbosity(ERROR)  # each retry would log two lines, and the last one raises anyway
    try:
        return Path(hf_hub_download(name, "tokenizer.json", revision=revision)).read_bytes()
    except refusals as error:  # no network, no such repository or file, a malformed name
        said = str(error).strip().partition("\n")[0].rstrip(".")
        raise DataError(
            f"tokenizer.name: cannot get tokenizer.json of {name}: {said}. Without a network, prepare the data where"
            " there is one (ablate data STUDY), or copy the file and write tokenizer: {kind: file, path: …}"
        ) from error
    finally:
        logging.set_verbosity(level)
