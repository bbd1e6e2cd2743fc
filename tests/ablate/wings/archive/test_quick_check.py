"""`ablate check --quick` against a full check: what it leaves out is what the file system says nobody has touched."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import ablate
from ablate.wings.archive.whole_folders import WholeFolders, stamp
from store import Store, stamps
from store.documents import ItemLoss, MetricsRecord
from store.run_files import RunFiles
from store.stamps import TICK_NS, checked_name
from tests.documents import result_of, run_of

RUNS = ("aa", "bb", "cc")
AGED_NS = 2 * TICK_NS


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of three runs that have ended."""
    store = Store(tmp_path / "runs")
    for digest in RUNS:
        store.write_run(run_of(digest))
        record = MetricsRecord(step=1, tokens=8, seconds=0.1, lr=1e-2, loss=2.5, tokens_per_second=1e4)
        store.append_metrics(digest, record)
        store.write_result(result_of(digest, loss=2.5), [ItemLoss(item=0, nats=2.5, targets=1, bytes=1)])
        model = store.model_dir(digest)
        model.mkdir()
        (model / "weights").write_bytes(b"0123456789")
        stamps.write(model, model, names=3)
    return store.root


@pytest.fixture
def _later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system's clock, some ticks after everything was written."""
    clock = stamps.clock
    monkeypatch.setattr(stamps, "clock", lambda path: (clock(path) or 0) + AGED_NS)


@pytest.fixture
def checked(root: Path, _later: None) -> Path:
    assert ablate.check(root) == []
    return root


def unchanged(root: Path) -> int:
    """Folders that a quick check leaves out, whose damages are those that a full one finds."""
    quick = ablate.check(root, quick=True)
    assert list(quick) == list(ablate.check(root))
    return quick.unchanged


def test_what_was_found_whole_is_not_read_again(checked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert unchanged(checked) == len(RUNS)
    for name in ("read_run", "read_result", "read_metrics", "read_losses", "check_state"):
        monkeypatch.delattr(RunFiles, name)
    monkeypatch.delattr(stamps, "check")
    assert ablate.check(checked, quick=True) == []


def written_in_place(path: Path) -> None:
    """As `rsync --inplace --times` writes: the same inode, size and time."""
    times, content = path.stat(), path.read_bytes()
    place = len(content) // 2
    with path.open("r+b") as file:
        file.write(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def replaced(path: Path) -> None:
    """As `rsync --times` writes: another inode, of the same size and time."""
    times, content = path.stat(), path.read_bytes()
    other = path.with_name("other")
    other.write_bytes(content[:-3] + b"?" + content[-2:])
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.rename(path)


def changed_places(path: Path) -> None:
    other = Path(str(path).replace("/aa/", "/bb/"))
    kept = path.with_name("kept")
    path.rename(kept)
    other.rename(path)
    kept.rename(other)


def added(path: Path) -> None:
    path.with_name("evals-aa.json").write_text("{}")


def linked(path: Path) -> None:
    """Whatever becomes of the target, the link stays as it is."""
    target = path.parent.parent.parent / path.name
    shutil.move(path, target)
    path.symlink_to(target)


CHANGES: list[tuple[Callable[[Path], object], int]] = [
    (written_in_place, 2),
    (replaced, 2),
    (changed_places, 1),
    (added, 2),
    (linked, 2),
    (Path.unlink, 2),
    (lambda path: os.truncate(path, 9), 2),
    (lambda path: shutil.rmtree(path.parent), 2),
]


@pytest.mark.parametrize("name", ["result.json", "metrics.ndjson", "model/weights"])
@pytest.mark.parametrize(("change", "left"), CHANGES)
def test_whatever_changes_is_read(change: Callable[[Path], object], left: int, name: str, checked: Path) -> None:
    path = checked / "aa" / name
    change(path)
    assert unchanged(checked) == left


def test_a_copy_of_a_store_is_read_whatever_its_times_say(checked: Path, tmp_path: Path) -> None:
    """`rsync --archive` brings the list of what was checked along."""
    copy = shutil.copytree(checked, tmp_path / "copy", copy_function=shutil.copy2)
    assert (copy / checked_name()).read_bytes() == (checked / checked_name()).read_bytes()
    assert unchanged(copy) == 0


def test_files_that_may_change_within_a_tick_are_read_again(root: Path) -> None:
    """A clock that stands still between two writes cannot tell them apart."""
    ablate.check(root)
    assert ablate.check(root, quick=True).unchanged == 0


def test_a_folder_that_changes_while_it_is_read_is_read_again(
    root: Path, _later: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Store.read_losses

    def read_and_write(store: Store, digest: str) -> object:
        found = read(store, digest)
        if digest == "aa":
            written_in_place(store.metrics_path(digest))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Store, "read_losses", read_and_write)
        assert ablate.check(root) == []
    assert unchanged(root) == 2


def test_what_could_not_be_read_is_read_again(root: Path, _later: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk says the same of every file, and not which."""

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(Store, "read_losses", fails)
        assert len(ablate.check(root).unreadable) == 1
    assert unchanged(root) == 0


@pytest.mark.usefixtures("_later")
def test_damage_is_told_again_until_it_is_mended(root: Path) -> None:
    path = root / "aa" / "losses.ndjson"
    content = path.read_bytes()
    path.write_bytes(b"{}\n")
    first, quick = ablate.check(root), ablate.check(root, quick=True)
    assert first == quick and len(quick) == 1 and quick.unchanged == 2
    path.write_bytes(content)
    assert ablate.check(root, quick=True) == []


@pytest.mark.parametrize("content", [b"", b"{", b"\xff" * 99, b'{"schema": 2, "folders": {}}', b"[" * 99_999, None])
def test_a_list_that_cannot_be_read_knows_nothing(content: bytes | None, checked: Path) -> None:
    """Damaged, of another version, or another user's alone: `None` stands for what cannot be opened."""
    path = checked / checked_name()
    path.unlink()
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    quick = ablate.check(checked, quick=True)
    assert (list(quick), quick.unchanged) == ([], 0)


def test_one_digit_of_the_list_makes_it_worthless(checked: Path) -> None:
    path = checked / checked_name()
    content = path.read_text()
    path.write_text(content.replace("aa", "ab", 1))
    assert ablate.check(checked, quick=True).unchanged == 0


def test_two_checks_at_once_leave_one_whole_list(checked: Path) -> None:
    first, second = WholeFolders(checked), WholeFolders(checked)
    for known, names in ((first, RUNS[:2]), (second, RUNS[1:])):
        for name in names:
            now = stamp(checked / name)
            known.add(name, now, now)
    first.write()
    second.write()
    assert unchanged(checked) == 2


def test_a_store_that_may_not_be_written_is_checked_as_before(checked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "touch", refused)
    before = (checked / checked_name()).read_bytes()
    assert ablate.check(checked, quick=True).unchanged == len(RUNS)
    assert (checked / checked_name()).read_bytes() == before
