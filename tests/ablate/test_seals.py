"""Logs with sealed lines, and the journal of searches, which is one."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
import pytest

import ablate
from ablate.cli import main
from ablate.wings.campaign import campaign_log
from ablate.wings.search.documents import SearchFolder, search_folder
from ablate.wings.search.storage import open_storage
from store import Store, StoreError, checksum
from store.documents import LedgerRecord
from store.files import IrregularFileError, one_at_a_time
from store.seals import Chain, SealedLog
from tests.ablate.toy import toy_study
from tests.reports.searching import search_of, trials_of
from tests.test_imports import ROOT

BODIES = [b'{"a":1}', b'{"b":[2.5]}', b'{"c":"d"}']


@pytest.fixture
def log(tmp_path: Path) -> SealedLog:
    return SealedLog(tmp_path / "log.ndjson", "mine", "restore it")


def test_seals_are_those_of_the_definition(log: SealedLog) -> None:
    log.add(BODIES[:2])
    log.add(BODIES[2:])
    seal = hashlib.sha256(b"mine").hexdigest()[:16]
    for line, body in zip(log.path.read_bytes().splitlines(), BODIES, strict=True):
        seal = hashlib.sha256(seal.encode() + body).hexdigest()[:16]
        assert line == body[:-1] + f',"seal":"{seal}"}}'.encode()
    assert log.bodies() == BODIES
    assert log.last_seal() == seal


def test_a_line_that_is_gone_from_the_middle_is_noticed(log: SealedLog) -> None:
    log.add(BODIES)
    lines = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(lines[0] + lines[2])
    with pytest.raises(StoreError, match=r"log\.ndjson:2: its checksum does not match: restore it"):
        log.bodies()


def test_lines_of_versions_without_seals_are_read_and_covered_by_the_next(log: SealedLog) -> None:
    log.path.write_bytes(BODIES[0] + b"\n" + BODIES[1] + b"\n")
    assert log.bodies() == BODIES[:2]
    log.add(BODIES[2:])
    assert log.bodies() == BODIES
    log.path.write_bytes(log.path.read_bytes().replace(b"2.5", b"3.5"))
    with pytest.raises(StoreError, match="its checksum does not match"):
        log.bodies()
    log.path.write_bytes(log.path.read_bytes().replace(b"3.5", b"2.5") + BODIES[0] + b"\n")
    with pytest.raises(StoreError, match=r"log\.ndjson:4"):
        log.bodies()


def test_two_writers_that_saw_the_same_end_are_both_right(log: SealedLog) -> None:
    """Each appends a line after the one that both have read."""
    log.add(BODIES[:1])
    first, second = (Chain(log.owner) for _ in range(2))
    for chain in (first, second):
        chain.body(log.path.read_bytes()[:-1])
    with log.path.open("ab") as file:
        file.write(first.sealed(BODIES[1]) + second.sealed(BODIES[2]))
    assert log.bodies() == BODIES
    log.add(BODIES[:1])
    assert log.bodies() == [*BODIES, BODIES[0]]


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes: as on a full disk, a part of a write is taken and the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_a_full_disk_ends_is_taken_back(log: SealedLog) -> None:
    log.add(BODIES[:1])
    before = log.path.read_bytes()
    with pytest.raises(OSError, match="File too large") as raised, files_of_at_most(len(before) + 20):
        log.add(BODIES[1:])
    assert raised.value.filename == str(log.path)
    assert log.path.read_bytes() == before


def searched(root: Path) -> SearchFolder:
    folder = search_folder(Store(root), "toy", "cpu")
    study = optuna.create_study(storage=open_storage(None, folder), study_name="toy-cpu-0")
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
    folder.write(search_of(trials_of(study), ["x"], name="toy", journal=folder.journal.last_seal()))
    return folder


def values(folder: SearchFolder) -> list[float | None]:
    return [
        trial.value for trial in optuna.load_study(study_name="toy-cpu-0", storage=open_storage(None, folder)).trials
    ]


def test_a_journal_torn_at_any_byte_goes_on(tmp_path: Path) -> None:
    folder = searched(tmp_path)
    whole = folder.journal_path.read_bytes()
    before = values(folder)
    operation = json.dumps({"op_code": 2, "worker_id": "x", "study_id": 0, "user_attr": {"a": "b"}}).encode()
    folder.journal.add([operation])
    line = folder.journal_path.read_bytes()[len(whole) :]
    for size in range(len(line)):
        folder.journal_path.write_bytes(whole + line[:size])
        study = optuna.load_study(study_name="toy-cpu-0", storage=open_storage(None, folder))
        assert study.user_attrs == {}
        study.set_user_attr("resumed", size)
        assert optuna.load_study(study_name="toy-cpu-0", storage=open_storage(None, folder)).user_attrs == {
            "resumed": size
        }
    assert values(folder) == before


def test_what_else_becomes_of_a_journal_is_one_line_with_its_file_and_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    folder = searched(tmp_path)
    whole = folder.journal_path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for content in (
        whole.replace(b"op_code", b"op_cnde", 1),
        whole[:-1] + b"\r",
        b"".join(lines[:-1]),
        b"",
        b"{}\n" + whole,
    ):
        folder.journal_path.write_bytes(content)
        with pytest.raises(StoreError) as raised:
            open_storage(None, folder)
        assert str(raised.value).startswith(str(folder.journal_path))
        assert str(raised.value).endswith(f"restore it, or remove {folder.path} to search again: its runs are kept")
        assert ablate.check(tmp_path) == [str(raised.value)]
    folder.journal_path.write_bytes(whole)
    assert ablate.check(tmp_path) == []


def test_a_journal_of_a_version_before_seals_goes_on(tmp_path: Path) -> None:
    folder = searched(tmp_path)
    before = values(folder)
    bodies = folder.journal.bodies()
    folder.journal_path.write_bytes(b"".join(body + b"\n" for body in bodies))
    folder.write(search_of([], ["x"], name="toy"))
    assert values(folder) == before
    assert ablate.check(tmp_path).unchecked == {"journal.log without checksums": 1}
    optuna.load_study(study_name="toy-cpu-0", storage=open_storage(None, folder)).set_user_attr("a", 1)
    assert values(folder) == before
    assert not ablate.check(tmp_path).unchecked


def test_a_search_without_locks_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    path = toy_study(tmp_path, "{}")
    path.write_text(f"{path.read_text()}search: {{space: {{train.lr: {{log: [1e-3, 1e-1]}}}}, trials: 1}}\n")
    monkeypatch.setattr("fcntl.flock", none)
    assert main(["search", str(path), "--store", str(tmp_path / "runs"), "--engine", "inprocess"]) == 2
    remedy = "No locks available: this file system has no locks: use a store on one that has them (--store DIR)"
    assert remedy in capsys.readouterr().err


@pytest.mark.processes
@pytest.mark.parametrize("place", ["ledger/tiny.ndjson", "searches/toy-cpu/journal.log", "campaigns/x.ndjson"])
def test_a_pipe_in_place_of_a_log_is_refused_at_once(place: str, copy: Path) -> None:
    path = copy / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    store = Store(copy)
    readers = {
        "ledger": lambda: store.read_ledger("tiny"),
        "searches": lambda: open_storage(None, search_folder(store, "toy", "cpu")),
        "campaigns": lambda: campaign_log.read(store, "x"),
    }
    with pytest.raises(OSError, match="is not a regular file"):
        readers[place.partition("/")[0]]()
    assert str(path) in "".join(ablate.check(copy).unreadable)


def test_logs_that_may_not_be_listed_are_not_taken_for_none(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A verdict accounts for the ledgers of all studies that share its runs."""
    shutil.rmtree(copy / "ledger")
    (copy / "ledger").touch()  # what root, too, cannot list
    assert main(["ledger", "tiny", "--store", str(copy)]) == 2
    assert str(copy / "ledger") in capsys.readouterr().err
    assert any(str(copy / "ledger") in line for line in ablate.check(copy).unreadable)


def test_a_ledger_that_lost_what_a_page_shows_is_noticed(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(copy)
    (name,) = store.ledgers()
    (folder,) = store.studies()
    assert main(["report", str(folder.path)]) == 0
    path = store.ledger_path(name)
    store.ledger(name).append([LedgerRecord(judged="2026-01-01T00:00:00+00:00", scale="cpu", tests=())])
    assert main(["report", str(folder.path)]) == 0, "more may have been judged since"
    whole = path.read_bytes()
    for content in (b"", b"".join(whole.splitlines(keepends=True)[:-1]), None):
        path.unlink() if content is None else path.write_bytes(content)
        capsys.readouterr()
        assert main(["report", str(folder.path)]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"ablate: {path} lacks a judgement that {folder.report_path} shows: restore it")
        assert main(["check", str(copy)]) == 1
        assert str(path) in capsys.readouterr().out
        assert not path.exists() or path.read_bytes() == content


@pytest.mark.parametrize("text", [b'[{"file": "x"}]', b'"file"', b'{"file": 3}', b'{"file": '])
def test_what_is_no_document_has_no_place(text: bytes) -> None:
    found = checksum.unsealed_json(text)
    assert (found.body, found.place) == (text, None)


WRITERS, WRITES, RECORDS = 4, 100, 20
APPENDING = """
import json, sys
from pathlib import Path
from store.seals import SealedLog

log = SealedLog(Path(sys.argv[1]), "mine", "restore it")
sys.stdin.readline()  # all writers begin together
for write in range(int(sys.argv[3])):
    records = ({"writer": int(sys.argv[2]), "record": [write, each]} for each in range(int(sys.argv[4])))
    log.add([json.dumps(record).encode() for record in records])
"""


@pytest.mark.processes
def test_writers_that_append_at_once_lose_no_line(log: SealedLog) -> None:
    """A line that another process is writing looks like one that a kill tore."""
    command = [sys.executable, "-c", APPENDING, str(log.path)]
    writers = [
        subprocess.Popen([*command, str(each), str(WRITES), str(RECORDS)], stdin=subprocess.PIPE, cwd=ROOT)
        for each in range(WRITERS)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.close()  # go
    assert [writer.wait() for writer in writers] == [0] * WRITERS
    found = [json.loads(body) for body in log.bodies()]
    assert len(found) == WRITERS * WRITES * RECORDS
    for number in range(WRITERS):
        own = [each["record"] for each in found if each["writer"] == number]
        assert own == [[write, each] for write in range(WRITES) for each in range(RECORDS)]


def test_the_unfinished_line_of_another_writer_is_not_cut_off(log: SealedLog) -> None:
    log.add(BODIES[:1])
    chain, _ = log.read()
    line = chain.sealed(BODIES[1])
    with log.path.open("ab", buffering=0) as other, one_at_a_time(other):
        other.write(line[:5])
        waiting = threading.Thread(target=log.add, args=[BODIES[2:]])
        waiting.start()
        waiting.join(timeout=0.2)
        assert waiting.is_alive()
        other.write(line[5:])
    waiting.join()
    assert log.bodies() == BODIES


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_what_has_no_end_has_no_checksum(device: str, tmp_path: Path) -> None:
    """In an archive that is packed, among others: a link in place of a file of the store."""
    (tmp_path / "link").symlink_to(device)
    with pytest.raises(IrregularFileError, match="not a regular file"):
        checksum.of_file(tmp_path / "link")
