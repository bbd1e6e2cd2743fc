"""Whatever becomes of a file of a store, `ablate check` notices, and nothing gives another number.

Each file of a store is of a kind (`full_store.KINDS`), and something is done to a file of each kind in every way. A new
kind of file fails the first test until it has a line there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
import pytest

import ablate
import reports
from ablate.wings.campaign import campaign_log
from ablate.wings.search.documents import SearchFolder, searches
from ablate.wings.search.storage import open_storage
from evals.harness.answers import Answers
from store import AblateError, Store
from tests.ablate.full_store import CHANGED_KINDS, CHECKED_KINDS, OPTIONAL, Kind, files_by_kind, write_every_index

if TYPE_CHECKING:
    import polars

Change = Callable[[bytes], bytes | None]


def one_digit(content: bytes) -> bytes | None:
    """Another number, as plausible as the first; None for a file without one."""
    found = [each.start(1) for each in re.finditer(rb"[:\[] ?-?\d*\.?(\d)", content)]
    if not found:
        return None
    place = found[len(found) // 2]
    return content[:place] + (b"3" if content[place : place + 1] == b"7" else b"7") + content[place + 1 :]


def one_bit(share: float) -> Change:
    """One bit turned over at this share of the file."""

    def changed(content: bytes) -> bytes:
        place = int(share * (len(content) - 1))
        return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]

    return changed


CHANGES: dict[str, Change] = {
    "digit": one_digit,
    "first bit": one_bit(0),
    "bit": one_bit(0.3),
    "bit of the seal": one_bit(0.985),
    "last bit": one_bit(1),
}
CUTS: dict[str, Change] = {
    "cut": lambda content: content[: len(content) // 2],
    "emptied": lambda _: b"",
    "last line gone": lambda content: b"".join(content.splitlines(keepends=True)[:-1]),
}


@contextmanager
def content(path: Path, new: bytes | None) -> Iterator[None]:
    """Other content for a while; None for no file."""
    old = path.read_bytes()
    path.unlink() if new is None else path.write_bytes(new)
    try:
        yield
    finally:
        path.write_bytes(old)


def noticed(root: Path, *paths: Path) -> bool:
    """Whether check names one of the files, or its folder."""
    return any(f"{name}" in line for line in ablate.check(root) for path in paths for name in (path, path.parent))


def first_of_each_name(files: list[Path]) -> list[Path]:
    return list({path.name: path for path in reversed(files)}.values())


def test_every_file_of_a_store_is_of_a_kind(full: Path) -> None:
    found, unknown = files_by_kind(full)
    assert not unknown, "a new kind of file: say in full_store.KINDS what becomes of it"
    assert not [kind.pattern for kind, files in found.items() if not files and kind.pattern not in OPTIONAL]
    report = ablate.check(full)
    assert (list(report), report.unchecked) == ([], {})


def check_notices(kind: Kind, root: Path, changes: Iterable[str]) -> None:
    for path in first_of_each_name(files_by_kind(root)[0][kind]):
        old = path.read_bytes()
        for name in changes:
            new = (CHANGES | CUTS)[name](old)
            harmless = (kind.cut and name in CUTS) or (kind.unread and name not in CUTS)
            if new not in (None, old) and not harmless:
                with content(path, new):
                    assert noticed(root, path), (path, name)
        with content(path, None):
            report = ablate.check(root)
            assert report or report.unchecked or kind.removed, (path, "removed")


@pytest.mark.parametrize("kind", CHECKED_KINDS, ids=lambda kind: kind.pattern)
def test_check_notices_what_becomes_of_a_file(kind: Kind, full: Path) -> None:
    check_notices(kind, full, ["digit", "cut"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", CHECKED_KINDS, ids=lambda kind: kind.pattern)
def test_check_notices_all_that_may_become_of_a_file(kind: Kind, full: Path) -> None:
    check_notices(kind, full, CHANGES | CUTS)


@pytest.mark.parametrize("kind", [kind for kind in CHECKED_KINDS if not kind.swapped], ids=lambda kind: kind.pattern)
def test_check_notices_files_that_changed_places(kind: Kind, full: Path) -> None:
    files = files_by_kind(full)[0][kind]
    for first in first_of_each_name(files):
        for second in files:
            old, new = first.read_bytes(), second.read_bytes()
            if first.suffix == second.suffix and old != new:
                with content(first, new), content(second, old):
                    assert noticed(full, first, second), (first, second)
                break
        else:
            assert first == files[-1] or kind.pattern in ("data/*/*", "checkpoints/*/*", "RUN/model/*"), (
                f"{first} has no other of its kind to change places with"
            )


def numbers(root: Path) -> dict[str, Any]:
    """What there is to read of a store, each as a document or as the complaint that it is refused with."""
    store = Store(root)
    read: dict[str, Callable[[], object]] = {}
    for folder in store.studies():
        name = folder.path.name
        read[f"summary of {name}"] = partial(_summary, folder.path)
        read[f"costs of {name}"] = partial(folder.read_costs, "c0")
    for digest in ("ca0", "ca1"):
        read[f"step time {digest}"] = partial(store.read_calibration, digest)
    for name in campaign_log.campaigns(store):
        read[f"proposals of {name}"] = partial(_proposals, store, name)
    for folder in searches(store):
        read[f"trials of {folder.path.name}"] = partial(_trials, folder)
        read[f"result of {folder.path.name}"] = folder.read
    for digest in store.runs():
        for name in ("result", "losses"):
            read[f"{name} of {digest}"] = partial(getattr(store, f"read_{name}"), digest)
        for name in ("evals", "samples", "measure"):
            read[f"{name} of {digest}"] = partial(getattr(store, f"read_{name}"), digest, "aa")
        read[f"outcome of {digest}"] = partial(store.outcome, digest)
        for name in ("metrics", "probes"):
            read[f"{name} of {digest}"] = partial(_rows, getattr(store, f"read_{name}"), digest)
        read[f"answers of {digest}"] = partial(_answers, store, digest)
    return {name: _or_refused(each) for name, each in read.items()}


def _or_refused(read: Callable[[], object]) -> object:
    try:
        return read()
    except AblateError as error:
        assert "\n" not in str(error)
        return error


@pytest.fixture(autouse=True)
def _indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a file said before it changed is in an index, wherever numbers are read."""
    write_every_index(monkeypatch)


def _summary(folder: Path) -> object:
    found = reports.summarise(folder)
    return found.arms, found.tests, found.ledger


def _trials(folder: SearchFolder) -> object:
    trials = optuna.load_study(study_name=f"{folder.path.name}-0", storage=open_storage(None, folder)).trials
    return [(trial.params, trial.values) for trial in trials]


def _proposals(store: Store, name: str) -> object:
    """A list, of which lines at the end may be gone: the proposal goes on where it stopped."""
    return list(campaign_log.read(store, name))


def _rows(read: Callable[[str], polars.DataFrame], digest: str) -> object:
    return read(digest).rows()


def _answers(store: Store, digest: str) -> object:
    path = store.answers_path(digest)
    if not path.exists():
        return None
    with Answers(path, owner=digest) as answers:
        return list(answers.known([answers.key(question) for question in range(40)]).values())


NONE = (None, [], {}, [None])


def assert_no_other_number(root: Path, before: dict[str, Any], what: object) -> None:
    """Each is what it was, or refused, or not there any more."""
    for name, found in numbers(root).items():
        same = found == before.get(name, found)
        fewer = isinstance(found, list) and all(each in before[name] for each in found)
        says_so = name.startswith("summary") and not isinstance(found, AblateError) and _missing(found)
        assert same or fewer or says_so or found in NONE or isinstance(found, AblateError), (what, name, found)


def _missing(summary: Any) -> bool:
    """Whether a page says that runs have not ended: one whose result is gone has not, and is trained again."""
    return any(arm.missing for arm in summary[0])


@pytest.fixture(scope="session")
def before(full: Path) -> dict[str, Any]:
    found = numbers(full)
    assert not [name for name, each in found.items() if isinstance(each, AblateError)]
    return found


@pytest.mark.parametrize("kind", CHANGED_KINDS, ids=lambda kind: kind.pattern)
def test_no_number_changes_in_silence(kind: Kind, full: Path, before: dict[str, Any]) -> None:
    """One digit here; everything in the slow test below."""
    for path in files_by_kind(full)[0][kind][:1]:
        new = one_digit(path.read_bytes()) or one_bit(0.3)(path.read_bytes())
        with content(path, new):
            assert_no_other_number(full, before, path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CHANGED_KINDS, ids=lambda kind: kind.pattern)
def test_nothing_that_becomes_of_a_file_changes_a_number(kind: Kind, full: Path, before: dict[str, Any]) -> None:
    bits = {f"bit at {share}": one_bit(share / 5) for share in range(6)}
    files = files_by_kind(full)[0][kind]
    for path in first_of_each_name(files)[:6]:
        for name, change in (CHANGES | CUTS | bits).items():
            with content(path, change(path.read_bytes())):
                assert_no_other_number(full, before, (path, name))
    for first, second in pairwise(files):
        if first.suffix == second.suffix:
            old, new = first.read_bytes(), second.read_bytes()
            with content(first, new), content(second, old):
                assert_no_other_number(full, before, (first, second))
