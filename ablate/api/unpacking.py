"""An archive, unpacked beside a store and verified, before anything of it is used."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from ablate.planning.identity import redone
from ablate.readable import now
from ablate.store import Store, StoreError, archive, checksum
from ablate.store.documents import MergedRecord, PackDocument, RunDocument
from ablate.store.merging import verify
from ablate.training.spec import TrainSpec
from zoo.errors import SpecError
from zoo.settings.registry import changed
from zoo.spec import parse


class Unpacked(NamedTuple):
    """A verified archive as a store of its own."""

    store: Store
    manifest: PackDocument
    sha256: str


@contextmanager
def unpacked(path: Path, beside: Path, most_bytes: int = archive.TOTAL_BYTES) -> Iterator[Unpacked]:
    """Unpack an archive into a hidden folder, verify all of it, and remove the folder in the end.

    Raises StoreError, in one line that names the archive, where any of it must not be used.
    """
    with tempfile.TemporaryDirectory(prefix=".merge-", dir=beside) as folder:
        with archive.named(path, Path(folder)):
            manifest, digest = archive.unpack(path, Path(folder), most_bytes), checksum.of_file(path)
            (Path(folder) / archive.MANIFEST).unlink()
            store = Store(folder)
            store.merged_log.append(_records(store, manifest, digest))
            verify(store, manifest)
            for name in manifest.runs:
                _verify_digest(store.read_run(name))
        yield Unpacked(store, manifest, digest)


def _records(store: Store, manifest: PackDocument, digest: str) -> Iterator[MergedRecord]:
    """Lines that say where runs came from: with these alone a run may lack its model."""
    at = now()
    for run in manifest.runs:
        if (result := store.read_result(run)) is not None:
            has_model = store.model_dir(run).is_dir()
            yield MergedRecord(at=at, archive=digest, run=run, finished=result.finished, weights=has_model)


def _verify_digest(run: RunDocument | None) -> None:
    """Raise StoreError where a run's settings are not those that its digest is of."""
    assert run is not None  # verified
    if lacking := ", ".join(changed(run.plugins or {})):
        raise StoreError(f"{run.digest}: trained with the plug-in {lacking}: give it with --plugin FILE")
    try:
        found = redone(run, parse(run.model), TrainSpec.model_validate(run.train))
    except (SpecError, ValidationError) as error:
        raise StoreError(f"{run.digest}/run.json: {str(error).splitlines()[0]}") from error
    if found.digest != run.digest:
        raise StoreError(
            f"{run.digest}: its settings have the digest {found.digest}: it is forged, or of another version of ablate"
        )
