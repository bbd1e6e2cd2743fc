"""A stored document that is not what it should be: each command that reads it says one line, with file and remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ablate.cli import main
from ablate.store import Store

Change = Callable[[bytes], bytes]


def of(text: str) -> Change:
    """Other content altogether."""
    return lambda _: text.encode()


def gone(_: bytes) -> bytes:
    """No file at all."""
    return b""


def field(path: str, value: object) -> Change:
    """The document with another value at a path; `*` is the first key."""

    def changed(content: bytes) -> bytes:
        document = json.loads(content)
        *around, last = path.split(".")
        here = document
        for key in around:
            here = here[next(iter(here)) if key == "*" else key]
        here[last] = value
        return json.dumps(document).encode()

    return changed


def zeros(content: bytes) -> bytes:
    """As many bytes, all of them lost: what a disk that was full or a machine that fell may leave."""
    return bytes(len(content))


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
            ":1: step: expected a whole number",
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
"""By file: what is done to it, the commands that read it, what they say, and the remedy. A `state.pt` of another shape
is in test_session.py."""


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
