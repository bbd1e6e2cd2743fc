"""`ablate.pack`: write studies and runs of a store to one archive for another store; and unpack such an archive, and
verify it before anything in it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from ablate.api.named import named_folder, study_name
from ablate.machine.environment import project_version
from ablate.planning.identity import digest_of_seed, recomputed, settings_of
from ablate.readable import now
from ablate.running.request import scratch
from ablate.training.spec import TrainSpec
from ablate.wings.archive import archive_file as archive
from ablate.wings.archive.archive_file import PackDocument
from ablate.wings.archive.file_checks import PLACE, PREFIX
from ablate.wings.archive.joining import verify
from ablate.wings.named.runs import named_run
from reports.judge.findings.judging import share_runs
from store import Store, StoreError, StudyFolder, checksum, jsonfile
from store.documents import MergedRecord, RunDocument, StudyDocument
from store.errors import ArgumentError
from store.extensions import modules_of
from zoo.errors import SpecError
from zoo.settings.registry import changed
from zoo.spec import parse


@dataclass(frozen=True)
class Packed:
    """An archive that was written.

    Attributes:
        path: the archive.
        sha256: the archive's checksum; equal content has equal checksums.
        studies: names of the study folders in the archive.
        runs: digests of the runs in the archive.
        left_out: digests of the requested runs that have not ended.
        bytes: the archive's size.
    """

    path: Path
    sha256: str
    studies: tuple[str, ...]
    runs: tuple[str, ...]
    left_out: tuple[str, ...]
    bytes: int


def pack(
    *names: str | Path, out: str | Path, weights: bool = False, scale: str | None = None, store: str | Path = "runs"
) -> Packed:
    """Write studies and runs, with their results, evaluations, measurements and ledgers, as one archive.

    Worker logs, pages, caches, checkpoints to resume from, texts and the folders of study files are not packed. Of each
    text, a description with its first 200 characters is packed.

    Args:
        names: studies, by name or file, and runs, by digest or the beginning of one, by STUDY/ARM or folder.
        out: the archive; an existing file is replaced.
        weights: also pack the trained models.
        scale: the studies' scale; needed if the store has one of them at several scales.
        store: the store's folder.

    Returns:
        The archive, its checksum and its content.

    Raises:
        ArgumentError: no study or run is named.
        StoreError: a study or run does not exist, is damaged or cannot be packed, or no run has ended.

    Example:
        >>> ablate.pack("norm_placement", out="norm_placement.zip").runs
    """
    if not names:
        raise ArgumentError("names", "name at least one study or run")
    place, target = Store(store), Path(out)
    folders, digests = _chosen(names, scale, place)
    studies = {folder: _document(folder) for folder in folders}
    asked = dict.fromkeys([*digests, *(digest for study in studies.values() for digest in sorted(study.run_digests))])
    every = sorted(_with_sources(place, asked))
    ended = [digest for digest in every if place.read_result(digest) is not None]
    if not ended:
        raise StoreError(f"{', '.join(map(str, names))}: no run has ended, so there is nothing to pack")
    files = dict(_files(place, studies, ended, weights))
    names_of_studies = [folder.path.name for folder in studies]
    checksum = archive.write(target, files, names_of_studies, ended, project_version())
    try:
        with unpacked(target, target.resolve().parent):  # verified as its recipient will
            pass
    except StoreError:
        target.unlink()
        raise
    left_out = tuple(sorted(set(every) - set(ended)))
    return Packed(target, checksum, tuple(names_of_studies), tuple(ended), left_out, target.stat().st_size)


def _chosen(names: Iterable[str | Path], scale: str | None, store: Store) -> tuple[list[StudyFolder], list[str]]:
    """Study folders and run digests for the given names. Raises StoreError."""
    studies = {name for study in store.study_documents() for name in (study.name, f"{study.name}-{study.scale}")}
    folders: list[StudyFolder] = []
    digests: list[str] = []
    known = store.runs()
    for name in names:
        is_run = "/" in str(name) or any(digest.startswith(str(name)) for digest in known)
        if study_name(name) not in studies and is_run:
            digests.append(named_run(name, store.root, Store.runs)[1])
            continue
        folder = named_folder(name, scale, store.root)
        if not StudyFolder(folder).exists:
            raise StoreError(f"{name} is a search, whose trials cannot be packed: name the study that it wrote")
        folders.append(StudyFolder(folder))
    return folders, digests


def _document(folder: StudyFolder) -> StudyDocument:
    study = folder.read()
    if study is None:
        raise StoreError(f"{folder.document_path} is gone: run the study again")
    for wing in modules_of(PLACE):
        if (reason := wing.unpackable(study)) is not None:
            raise StoreError(f"{study.name} {reason}, which cannot be packed: pack its runs instead")
    return study


def _with_sources(store: Store, digests: Iterable[str]) -> set[str]:
    """These runs and, recursively, the runs whose weights or predictions they were trained from. Raises StoreError."""
    found: set[str] = set()
    waiting = list(digests)
    while waiting:
        digest = waiting.pop()
        run = store.read_run(digest)
        if digest in found or run is None:
            continue
        if run.imported is not None:
            raise StoreError(f"{digest}: the run is an imported model, so it cannot be packed")
        found.add(digest)
        waiting += [source.run for source in (run.start, run.teacher) if source is not None and source.run is not None]
    return found


def _files(
    store: Store, studies: dict[StudyFolder, StudyDocument], digests: Iterable[str], weights: bool
) -> Iterator[tuple[str, archive.Content]]:
    """Files of the archive, by path in the store."""
    for digest in digests:
        yield from _files_of_run(store, digest, weights)
    for folder, study in studies.items():
        # The study's document, then its measurements, judgements and registrations.
        path = folder.document_path
        yield _place(store, path), jsonfile.sealed(path, study.portable, jsonfile.place_of(path)).encode()
        others = (folder.path.glob(name) for name in ("costs-*.json", "judged.json", "registered.ndjson"))
        yield from ((_place(store, other), other) for found in others for other in found)
    for name in _ledgers(store, {study.name for study in studies.values()}):
        ledger = store.ledger(name)
        store.read_ledger(name)  # raises StoreError if it is damaged
        yield _place(store, ledger.path), ledger.whole(ledger.content())


def _files_of_run(store: Store, digest: str, weights: bool) -> Iterator[tuple[str, archive.Content]]:
    """A run's documents and logs, with `weights` its model, and the description of its text."""
    folder = store.run_dir(digest)
    paths = [*folder.glob("*.*json"), *(folder.glob("model/*") if weights else ())]
    yield from ((place, path) for path in paths if archive.travels(place := _place(store, path)))
    run = store.read_run(digest)
    corpus = store.data(run.data.digest) if run else None
    if corpus is not None and corpus.is_known:
        own = corpus.document_path if corpus.path.is_dir() else corpus.described_path
        for path in (own, *own.parent.glob("references-*.json")):
            yield _place(store, corpus.described_path.with_name(path.name)), path


def _ledgers(store: Store, names: set[str]) -> set[str]:
    """Names of the ledgers of these studies, and of studies that judged the same runs under other names."""
    records = {name: store.read_ledger(name) for name in store.ledgers()}
    found = names & records.keys()
    while more := {
        name for name in records.keys() - found if any(share_runs(records[name], records[own]) for own in found)
    }:
        found |= more
    return found


def _place(store: Store, path: Path) -> str:
    return path.relative_to(store.root).as_posix()


class Unpacked(NamedTuple):
    """A verified archive as a store of its own."""

    store: Store
    manifest: PackDocument
    sha256: str


@contextmanager
def unpacked(path: Path, beside: Path, most_bytes: int = archive.TOTAL_BYTES) -> Iterator[Unpacked]:
    """Unpack an archive into a hidden folder, verify all of it, and remove the folder at the end, and those that killed
    commands left.

    Raises StoreError, in one line that names the archive, if any part of it must not be used.
    """
    with scratch(PREFIX, beside) as outer, archive.named_on_disk(path, outer):
        folder = outer / "store"
        folder.mkdir()
        with archive.named(path, folder):
            manifest, digest = archive.unpack(path, folder, most_bytes), checksum.of_file(path)
            (folder / archive.MANIFEST).unlink()
            store = Store(folder)
            store.merged_log.append(_records(store, manifest, digest))
            verify(store, manifest)
            known: dict[str, Callable[[int], str]] = {}
            for name in manifest.runs:
                _verify_digest(store.read_run(name), known)
        yield Unpacked(store, manifest, digest)


def _records(store: Store, manifest: PackDocument, digest: str) -> Iterator[MergedRecord]:
    """Records of the archive that runs came from. Only a run with such a record may lack its model."""
    at = now()
    for run in manifest.runs:
        if (result := store.read_result(run)) is not None:
            has_model = store.model_dir(run).is_dir()
            yield MergedRecord(at=at, archive=digest, run=run, finished=result.finished, weights=has_model)


def _verify_digest(run: RunDocument | None, known: dict[str, Callable[[int], str]]) -> None:
    """Raise StoreError if a run's digest is not that of its settings, or its plug-ins are missing or changed.

    known: digests by seed of settings that were read before: seeds of an arm share them.
    """
    assert run is not None  # `verify` checks that
    if lacking := ", ".join(changed(run.plugins or {})):
        raise StoreError(f"{run.digest}: trained with the plug-in {lacking}: give it with --plugin FILE")
    shared = settings_of(run)
    key = shared.model_dump_json()
    try:
        if key not in known:
            known[key] = digest_of_seed(shared, parse(run.model), TrainSpec.model_validate(run.train))
        found = recomputed(run, known[key])
    except (SpecError, ValidationError) as error:
        raise StoreError(f"{run.digest}/run.json: {str(error).splitlines()[0]}") from error
    if found.digest != run.digest:
        raise StoreError(
            f"{run.digest}: its settings have the digest {found.digest}: forged, or from another version of ablate"
        )
