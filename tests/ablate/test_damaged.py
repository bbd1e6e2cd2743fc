"""A stored document that is not what it should be: each command that reads it says one line, with file and remedy."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import ablate
import zoo
from ablate.cli import main
from ablate.training.trained import TrainingProgress, load_state, save_state, trained_model
from evals.harness.answers import Answers, AnswersError, check
from store import Store, StoreError, checksum

Change = Callable[[bytes], bytes]


def of(text: str) -> Change:
    """Other content altogether."""
    return lambda _: text.encode()


def gone(_: bytes) -> bytes:
    """No file at all."""
    return b""


def field(path: str, value: object) -> Change:
    """The document with another value at a path, and no checksum; `*` is the first key."""

    def changed(content: bytes) -> bytes:
        document = json.loads(content)
        del document["checksum"]
        *around, last = path.split(".")
        here = document
        for key in around:
            here = here[next(iter(here)) if key == "*" else key]
        here[last] = value
        return json.dumps(document).encode()

    return changed


def zeros(content: bytes) -> bytes:
    """Zeros in place of all bytes, which a full disk or a machine that went down may leave."""
    return bytes(len(content))


def one_digit(content: bytes) -> bytes:
    """Another loss, as plausible as the first."""
    return re.sub(rb'"loss": \d', b'"loss": 9', content)


def edited(content: bytes) -> bytes:
    """Content as an editor of JSON would leave it."""
    return json.dumps(json.loads(content) | {"loss": 1.0}).encode()


def one_bit(content: bytes) -> bytes:
    """The last bit turned over."""
    return content[:-1] + bytes([content[-1] ^ 1])


TRAIN, PREPARE = "to train the run again", "to prepare the data again"
DAMAGE: dict[str, list[tuple[Change, str, str, str]]] = {
    "studies/tiny-*/study.json": [
        (of('{"schema": 1}'), "report run", "name: is missing", "and run the study again"),
        (field("arms", None), "report run", "arms: expected a list, not null", "and run the study again"),
    ],
    "DIGEST/result.json": [
        (of('{"schema": 1}'), "plan report run eval", "digest: is missing", TRAIN),
        (field("loss", "2.5"), "plan report run eval", "loss: expected a number, not '2.5'", TRAIN),
        (field("tokens", None), "plan report run eval", "tokens: expected a whole number, not null", TRAIN),
        (edited, "plan report run eval", "checksum: does not match the file", TRAIN),
        (one_digit, "plan report run eval", "its checksum does not match", TRAIN),
    ],
    "DIGEST/run.json": [
        (of('{"digest": "0"}'), "report run eval", "schema version None", TRAIN),
        (field("model.mixer", "none"), "eval generate", "model.mixer: unknown key", TRAIN),
        (field("train.lr", "fast"), "eval generate", "train.lr: ", TRAIN),
    ],
    "DIGEST/evals-*.json": [
        (field("scores.*.*.value", "x"), "eval", "expected a number, not 'x'", "to evaluate the run again"),
    ],
    "DIGEST/model/*.safetensors": [
        (one_bit, "eval_again generate", "is damaged", "to train it again"),
    ],
    "DIGEST/metrics.ndjson": [
        (
            of('{"step": "x", "tokens": [], "seconds": null}\n'),
            "report run",
            "its checksum does not match",
            TRAIN,
        ),
    ],
    "data/*/meta.json": [
        (gone, "plan report run eval", "is gone", PREPARE),
        (of("{}"), "plan report run eval generate", "schema version None", PREPARE),
        (field("eos", "x"), "plan report run eval generate", "eos: expected a whole number, not 'x'", PREPARE),
    ],
    "data/*/train.bin": [
        (zeros, "run eval_again", "is damaged", PREPARE),
        (gone, "run eval_again", "is gone", PREPARE),
    ],
    "data/*/test.jsonl": [
        (of('{"a": 1}\n'), "eval_again", "is damaged", PREPARE),
    ],
    "data/*/tokenizer.json": [
        (zeros, "run eval_again", "is damaged", PREPARE),
    ],
}
"""Damage by file: what is done to it, the commands that read it, their message, and the remedy. A `state.pt` of another
shape is in test_session.py."""


@pytest.mark.parametrize("file", DAMAGE)
def test_a_damaged_document_is_one_line_with_its_file_and_the_remedy(
    file: str, study: Path, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = Store(copy).runs()[0]
    evaluate = ["eval", digest, "--store", str(copy), "--tasks", "heldout_text", "--limit"]
    commands = {
        "plan": ["plan", str(study), "--store", str(copy)],
        "run": ["run", str(study), "--store", str(copy), "--engine", "inprocess"],
        "report": ["report", str(next(copy.glob("studies/*")))],
        "eval": [*evaluate, "2"],
        "eval_again": [*evaluate, "3"],
        "generate": ["generate", digest, "--store", str(copy), "--prompt", "a"],
    }
    assert main(commands["eval"]) == 0
    (path,) = copy.glob(file.replace("DIGEST", digest))
    whole = path.read_bytes()
    for change, readers, said, remedy in DAMAGE[file]:
        path.unlink(missing_ok=True)
        if change is not gone:
            path.write_bytes(change(whole))
        for command in readers.split():
            capsys.readouterr()
            assert main(commands[command]) == 2, (command, said)
            line = capsys.readouterr().err.splitlines()[-1]
            assert line.startswith(f"ablate: {path}"), line
            assert said in line and line.endswith(remedy), line


def test_zeros_under_the_time_of_what_was_there_are_noticed(
    study: Path, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Zeros with the old modification time, as a restored backup may leave them, are reported as damage."""
    (path,) = copy.glob("data/*/train.bin")
    before = path.stat()
    path.write_bytes(bytes(before.st_size))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert main(["run", str(study), "--store", str(copy), "--engine", "inprocess", "--set", "seeds=3"]) == 2
    assert f"{path} is damaged" in capsys.readouterr().err


UNCHECKED = (".*", "checked-*", "answers.db", "log.txt", "*.html")
"""Hidden files, what is made again at need, logs for people, and what says which files were checked."""


def middle(content: bytes) -> bytes:
    """One bit turned over in the middle."""
    half = len(content) // 2
    return content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :]


def test_check_names_each_file_of_which_one_bit_changed(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(copy)
    begun, digest = store.runs()[:2]
    assert main(["eval", digest, "--store", str(copy), "--tasks", "heldout_text", "--limit", "2"]) == 0
    torch.save({"step": torch.arange(100)}, store.state_path(begun))
    checksum.seal(store.state_path(begun), begun)
    capsys.readouterr()
    assert main(["check", str(copy)]) == 0
    assert capsys.readouterr().out == f"{copy}: all files are intact\n"
    files = [path for path in sorted(copy.rglob("*")) if path.is_file() and path.parent.name != "ledger"]
    changed = [path for path in files if not any(path.match(pattern) for pattern in UNCHECKED)]
    assert {path.suffix for path in changed} == {".json", ".ndjson", ".safetensors", ".bin", ".npy", ".jsonl", ".pt"}
    for path in changed:
        whole = path.read_bytes()
        path.write_bytes(middle(whole))
        assert main(["check", str(copy)]) == 1, path
        lines = capsys.readouterr().out.splitlines()[:-1]
        assert any(line.startswith(str(path)) for line in lines), (path, lines)
        assert all(": remove " in line or line.endswith("run the study again") for line in lines), lines
        path.write_bytes(whole)


EVALUATE = ["--tasks", "heldout_text", "--limit"]


def test_answers_of_another_model_are_refused(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of another run's, or of a run of this digest in another store, whose weights are others."""
    one, other = Store(copy).runs()[:2]
    for digest in (one, other):
        assert main(["eval", digest, "--store", str(copy), *EVALUATE, "2"]) == 0
    mine, theirs = (Store(copy).answers_path(digest) for digest in (one, other))
    shutil.copy(theirs, mine)
    capsys.readouterr()
    assert main(["eval", one, "--store", str(copy), *EVALUATE, "3"]) == 2
    line = f"{mine} has answers of another model: remove it to let this one answer"
    assert capsys.readouterr().err.splitlines()[-1].endswith(line)
    assert list(ablate.check(copy)) == [line]
    mine.unlink()
    assert main(["eval", one, "--store", str(copy), *EVALUATE, "3"]) == 0
    assert list(ablate.check(copy)) == []


def test_answers_that_name_no_model_are_counted_until_they_do(copy: Path) -> None:
    digest = Store(copy).runs()[0]
    path = Store(copy).answers_path(digest)
    with Answers(path, "earlier versions named none"):
        pass
    assert list(ablate.check(copy).unchecked) == ["answers.db with unsealed answers, or which does not name its model"]
    assert main(["eval", digest, "--store", str(copy), *EVALUATE, "2"]) == 0
    assert not ablate.check(copy).unchecked


def test_answers_that_are_cut_anywhere_are_damaged_or_fewer(tmp_path: Path) -> None:
    whole, cut = tmp_path / "answers.db", tmp_path / "cut.db"
    with Answers(whole, "mine") as answers:
        keys = [answers.key(question) for question in range(60)]
        for question, key in enumerate(keys):
            answers.add(key, question)
    content, known = whole.read_bytes(), dict(zip(keys, range(60), strict=True))
    for size in range(0, len(content), 101):
        cut.write_bytes(content[:size])
        try:
            check(cut, None)
            with Answers(cut, "mine") as answers:
                found = answers.known(keys)
        except (AnswersError, OSError):
            continue
        assert found.items() <= known.items(), size


def test_a_checkpoint_that_changed_is_refused(tmp_path: Path) -> None:
    """torch itself reads changed numbers without a word."""
    store, model = Store(tmp_path), torch.nn.Linear(64, 64)
    save_state(store, "run", TrainingProgress(), {"model": model})
    path = store.state_path("run")
    path.write_bytes(middle(path.read_bytes()))
    torch.load(path, weights_only=True)
    with pytest.raises(StoreError, match="is damaged, or belongs to another run: remove it to start the run again"):
        load_state(store, "run", {"model": model})


OF_THE_MACHINE = [
    PermissionError(errno.EACCES, "Permission denied"),
    OSError(errno.EMFILE, "Too many open files"),
    OSError(errno.EIO, "Input/output error"),
    MemoryError(),
    RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ValueError("no such format in this version"),
]


@pytest.mark.parametrize("error", OF_THE_MACHINE, ids=lambda error: str(error) or "MemoryError")
@pytest.mark.parametrize("command", ["generate", "check", "resume"])
def test_what_the_machine_lacks_is_no_damage(
    command: str, error: Exception, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is told to remove a file whose checksum has just matched."""

    def fails(*_: object, **__: object) -> None:
        raise error

    store = Store(copy)
    digest = store.runs()[0]
    if command == "resume":
        save_state(store, digest, TrainingProgress(), {"model": torch.nn.Linear(2, 2)})
    monkeypatch.setattr(zoo, "open", fails)
    monkeypatch.setattr(torch, "load", fails)
    if command == "check" and isinstance(error, OSError):
        monkeypatch.setattr(checksum, "of_file", fails)
        found = ablate.check(copy)
        assert (list(found), found.unreadable) == ([], [str(error)])
        return
    with pytest.raises(Exception) as raised:
        load_state(store, digest, {}) if command == "resume" else trained_model(store, digest)
    said = str(raised.value)
    assert "damaged" not in said and "remove" not in said
    assert type(raised.value) is (StoreError if isinstance(error, ValueError) else type(error))
