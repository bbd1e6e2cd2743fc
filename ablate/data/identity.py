"""Which text corpus a spec means, without preparing it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.data.sources import TextSource
from ablate.data.splitting import survey

SCHEMA = 1


@dataclass(frozen=True)
class DataIdentity:
    """`digest` names the prepared corpus: the same text, tokenizer and split have the same one, wherever they lie."""

    digest: str
    vocab_size: int
    describe: dict[str, Any]
    """What a reader of the report wants to know: source, content hash, documents and bytes per split."""


def identify_text(spec: TextSource, base: Path = Path()) -> DataIdentity:
    """Reads and hashes the text; neither tokenises nor writes.

    Raises:
        DataError: the text or the tokenizer cannot be read, or a split would be empty.
    """
    content, found = _content(spec, base)
    tokenizer = spec.tokenizer.identity(base)
    split: dict[str, Any] = {"fraction": spec.validation_fraction, "tokens": spec.validation_tokens}
    if spec.held_out(base) is not None:
        split["fraction"] = None
        split["given"] = found["documents"]["validation"]
    identity = {"schema": SCHEMA, "content": content, "tokenizer": tokenizer, "split": split}
    return DataIdentity(
        digest=digest_of(identity),
        vocab_size=spec.tokenizer.vocabulary(base),
        describe={"spec": spec.model_dump(mode="json"), **identity, **found},
    )


def digest_of(identity: dict[str, Any]) -> str:
    """32 hex digits of the sha256 of canonical JSON."""
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def _content(spec: TextSource, base: Path) -> tuple[str, dict[str, Any]]:
    fingerprint = spec.fingerprint()
    if fingerprint is not None:
        return fingerprint, {}
    found = survey(spec, base)
    counts = {"unit": found.unit, "documents": found.documents, "bytes": found.bytes}
    return found.content, counts
