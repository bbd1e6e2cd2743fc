"""Reading all of a store: every document, log, corpus, model and checkpoint, each compared with its checksum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from ablate.store import sums
from ablate.store.files import StoreError
from ablate.store.paths import FOLDERS
from ablate.store.store import Store

OF_A_RUN = ("run.json", "result.json", "metrics.ndjson", "state.pt")


def run_folders(store: Store) -> list[str]:
    """Digests of the runs that have begun, also of those whose identity is gone."""
    found = {path.parent.name for name in OF_A_RUN for path in store.root.glob(f"*/{name}")}
    return sorted(found - FOLDERS)


def corpora(store: Store) -> list[str]:
    return sorted(path.name for path in store.data_dir.glob("[!.]*") if path.is_dir())


def damages(store: Store) -> Iterator[str]:
    """One line for each damage: the file, what is wrong with it, and the remedy."""
    for digest in run_folders(store):
        yield from dict.fromkeys(_of_run(store, digest))
    for study in store.studies():
        yield from _whole(study.document_path, "remove it, and run the study again", study.read)
        for path in sorted(study.path.glob("costs-*.json")):
            request = path.stem.removeprefix("costs-")
            yield from _whole(path, "remove it, and run the study again", study.read_costs, request)
    for search in store.searches():
        yield from _whole(search.document_path, "remove it, and run the search again", search.read)
    for digest in corpora(store):
        yield from dict.fromkeys(_of_corpus(store, digest))
    for path in sorted(store.root.glob("checkpoints/[!.]*")):
        yield from _readable(sums.check, path, f"remove {path}, and run the study again", True)
    for name in store.imports():
        yield from _whole(store.import_path(name), "remove it, and import the model again", store.read_import, name)
    for digest in store.calibrations():
        path = store.calibration_path(digest)
        yield from _whole(path, "remove it to measure the step time again", store.read_calibration, digest)
    for name in store.ledgers():
        yield from _readable(store.read_ledger, name)


def _of_run(store: Store, digest: str) -> Iterator[str]:
    folder = store.run_dir(digest)
    train_again = f"remove {folder} to train the run again"
    if not store.run_path(digest).exists():
        yield f"{store.run_path(digest)} is gone: {train_again}"
    yield from _whole(store.run_path(digest), train_again, store.read_run, digest)
    yield from _whole(store.result_path(digest), "run the study again", store.read_result, digest)
    for read in (store.read_metrics, store.read_probes, store.read_losses, store.check_state):
        yield from _readable(read, digest)
    if not list(_readable(store.status, digest)) and store.status(digest) == "finished":
        yield from _readable(lambda: sums.check(store.model_dir(digest), store.model_again(digest), True))
    for path in sorted(folder.glob("measure-*.json")):
        name = path.stem.removeprefix("measure-")
        yield from _whole(path, "remove it to measure the run again", store.read_measure, digest, name)
    for path in sorted(folder.glob("evals-*.json")):
        name = path.stem.removeprefix("evals-")
        yield from _whole(path, "remove it to evaluate the run again", store.read_evals, digest, name)
        yield from _readable(store.read_samples, digest, name)


def _of_corpus(store: Store, digest: str) -> Iterator[str]:
    yield from _readable(store.data(digest).read)
    yield from _readable(store.data(digest).check, True)


def _whole(path: Path, remedy: str, read: Callable[..., object], *arguments: object) -> Iterator[str]:
    """The complaint about a document, also about one that counts as not yet written."""
    complaints = list(_readable(read, *arguments))
    if not complaints and path.exists() and read(*arguments) is None:
        complaints = [f"{path}: is empty or half-written: {remedy}"]
    yield from complaints


def _readable(read: Callable[..., object], *arguments: object) -> Iterator[str]:
    try:
        read(*arguments)
    except (StoreError, OSError) as error:
        yield str(error)
