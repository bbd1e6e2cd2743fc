"""A trained run, by what a caller knows of it."""

from __future__ import annotations

import json
from pathlib import Path

from ablate.data.tokenizers._encoder import EOS
from ablate.store import Store, StoreError
from ablate.training.trained import trained_tokenizer


def find_run(name: str | Path, root: str | Path) -> tuple[Store, str]:
    """The store and the digest of a finished run, by folder, digest, or the beginning of one. Raises StoreError."""
    folder, start = Path(name), str(name)
    if (folder / "run.json").is_file():
        root, start = folder.resolve().parent, folder.resolve().name
    store = Store(root)
    found = [digest for digest in store.runs() if digest.startswith(start)]
    if len(found) != 1:
        reason = f"{len(found)} runs begin so: {', '.join(found)}" if found else "there is no such run"
        raise StoreError(f"{start}: {reason} in {store.root}/")
    status = store.status(found[0])
    if status != "finished":
        raise StoreError(f"{found[0]}: the run is {status}, so there is no model")
    return store, found[0]


def end_token(store: Store, digest: str) -> int:
    """The token that ends a document: of the run's corpus; where that is gone, the one that our own tokenizers use."""
    identity = store.read_run(digest) or {}
    meta = store.data_dir() / str(identity.get("data", {}).get("digest")) / "meta.json"
    if meta.is_file():
        return int(json.loads(meta.read_text(encoding="utf-8"))["eos"])
    found = trained_tokenizer(store, digest).token_to_id(EOS)
    if found is None:
        raise StoreError(f"{digest}: which token ends a document is in its corpus, and that is gone from the store")
    return int(found)
