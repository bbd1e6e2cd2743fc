"""Any file or folder that a command reads, in the place of which something else stands: status 0, 1 or 2, a line of
why, no traceback, no waiting without an end, and nothing written where it is 2."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import signal
import struct
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

from ablate.data.sources.tokens import MEGATRON
from ablate.data.tokenizers.bytes import byte_tokenizer
from store import Store, checksum, jsonfile
from tests.ablate.test_odd_commands import said_by

QUIET = list(HealthCheck)
QUICK = settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=QUIET)
LONG = settings(max_examples=2000, deadline=None, suppress_health_check=QUIET)
PATIENCE_SECONDS, IDLE_SECONDS = 120.0, 0.2
"""Far longer than any of these commands takes."""

Hostile = Callable[[Path, bytes], object]
"""Makes what stands at a path, where a file of this content was."""


class WaitsWithoutEndError(BaseException):
    """Nothing that a command may catch."""


def edited(change: Callable[[object], object]) -> Hostile:
    """A JSON file with another value; of a file that is none, the JSON of its text."""

    def write(path: Path, content: bytes) -> None:
        try:
            known = json.loads(content)
        except ValueError:
            known = content.decode(errors="replace")
        path.write_text(json.dumps(change(known)))

    return write


def first_value(value: object) -> Callable[[object], object]:
    return lambda known: {**known, next(iter(known)): value} if isinstance(known, dict) and known else value


def written(content: bytes) -> Hostile:
    return lambda path, _: path.write_bytes(content)


def zipped_again(path: Path, content: bytes) -> None:
    """An archive under a folder, with what file managers add; of a file that is none, an archive of it."""
    with zipfile.ZipFile(path, "w") as new:
        new.mkdir("folder")
        new.writestr("__MACOSX/folder/._x", b"\0")
        if zipfile.is_zipfile(io.BytesIO(content)):
            with zipfile.ZipFile(io.BytesIO(content)) as old:
                for name in old.namelist():
                    new.writestr(f"folder/{name}", old.read(name))
        else:
            new.writestr("folder/file", content)


OBEYED = "\x1b]0;x\x07\r\x9b2J\u202e"


def obeyed(path: Path, content: bytes) -> None:
    """A document whose every text, and one key, has what a terminal obeys, with a checksum that fits; of a file that is
    none, its text and such an end."""

    def changed(value: object) -> object:
        if isinstance(value, dict):
            return {OBEYED: 1} | {key: changed(each) for key, each in value.items()}
        return [changed(each) for each in value] if isinstance(value, list) else f"{value}{OBEYED}"

    try:
        known = json.loads(checksum.unsealed_json(content).body)
    except ValueError:
        path.write_bytes(content + OBEYED.encode())
        return
    text = json.dumps(changed(known), indent=1) + "\n"
    path.write_text(checksum.sealed_json(text, jsonfile.place_of(path)) if isinstance(known, dict) else text)


WITHOUT_END = {"type": "Split", "pattern": {"Regex": r"(\w+\s?)+[^\w\s]"}, "behavior": "Isolated", "invert": False}
"""A tokenizer's expression that backtracks until the library panics."""

HOSTILE: dict[str, Hostile] = {
    "pipe": lambda path, _: os.mkfifo(path),
    "endless": lambda path, _: path.symlink_to("/dev/zero"),
    "random": lambda path, _: path.symlink_to("/dev/urandom"),
    "process memory": lambda path, _: path.symlink_to("/proc/self/mem"),
    "directory": lambda path, _: path.mkdir(),
    "link to itself": lambda path, _: path.symlink_to(path.name),
    "link to its folder": lambda path, _: path.symlink_to(".."),
    "link to nothing": lambda path, _: path.symlink_to("nowhere"),
    "nothing": lambda path, _: None,
    "empty": written(b""),
    "zeros": lambda path, content: path.write_bytes(bytes(len(content))),
    "half": lambda path, content: path.write_bytes(content[: len(content) // 2]),
    "twice": lambda path, content: path.write_bytes(content * 2),
    "binary": written(bytes(range(256)) * 40),
    "no UTF-8": written(b'{"question": "\xff\xfe\xe9"}'),
    "UTF-16": lambda path, content: path.write_bytes(content.decode(errors="replace").encode("utf-16")),
    "mark of byte order": lambda path, content: path.write_bytes(b"\xef\xbb\xbf" + content),
    "compressed": lambda path, content: path.write_bytes(gzip.compress(content)),
    "torn gzip": written(gzip.compress(bytes(9999))[:30]),
    "deep": written(b"[" * 100_000),
    "deep maps": written(b'{"a":' * 50_000),
    "long line": written(b"x" * 3_000_000),
    "long number": written(b'{"schema": ' + b"9" * 5000 + b"}"),
    "aliases": written(b"a: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nquestion: [*c,*c,*c,*c]\n"),
    "tags": written(b"question: !!python/object/apply:os.system [id]\n"),
    "null": written(b"null"),
    "list": written(b"[]"),
    "map": written(b"{}"),
    "not a number": written(b'{"schema": 1, "loss": NaN, "vocab_size": Infinity}'),
    "null inside": edited(first_value(None)),
    "list inside": edited(first_value([[]])),
    "huge inside": edited(first_value(10**30)),
    "negative inside": edited(first_value(-1)),
    "in a list": edited(lambda known: [known]),
    "catastrophic expression": edited(
        lambda known: {**known, "pre_tokenizer": WITHOUT_END} if isinstance(known, dict) else known
    ),
    "obeyed by a terminal": obeyed,
    "zipped again": zipped_again,
    "shard of streaming": written(struct.pack("<III", 1, 16, 20) + b"\xff{}text"),
    "saved dataset": written(b"\xff\xff\xff\xff\xa8\0\0\0\x10\0\0\0"),
    "code that raises": written(b"raise RuntimeError('no')\n"),
    "code that exits": written(b"import sys; sys.exit(0)\n"),
    "code that interrupts": written(b"raise KeyboardInterrupt\n"),
}

PLUGIN = """
from typing import Literal
from zoo.norms import Norm
class MeanNorm(Norm):
    kind: Literal["meannorm"] = "meannorm"
"""
TASK = """task: own
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/tasks/items.jsonl}}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
"""
STORE = ["--store", "runs"]
ELSEWHERE = ["--store", "imported"]
DATA = "data={source: files, paths: [texts/*.txt], tokenizer: TOKENIZER, validation_tokens: 256}"
IDS = "data={source: tokens, paths: [ids.bin], tokenizer: bytes, validation_tokens: 256}"
IMPORT = ["--text", "texts/0.txt", "--context", "16", "--no-measure", *ELSEWHERE]
OF_A_STORE = [
    ["check", "runs"],
    ["check", "runs", "--quick"],
    ["report", "runs"],
    ["list", *STORE],
    ["status", *STORE],
    ["plan", "tiny.yaml", *STORE],
    ["logs", "RUN", *STORE],
    ["ledger", "tiny", *STORE],
    ["pack", "RUN", "--out", "exported/run.zip", *STORE],
    ["generate", "RUN", "--prompt", "norm", "--tokens", "2", *STORE],
    ["export", "RUN", "exported", *STORE],
    ["eval", "RUN", "--tasks", "heldout_text", "--limit", "2", *STORE],
]
COMMANDS: dict[str, list[list[str]]] = {
    "tiny.yaml": [["plan", "tiny.yaml", *STORE], ["data", "tiny.yaml", *STORE], ["report", "tiny.yaml", *STORE]],
    "texts/0.txt": [["plan", "tiny.yaml", *STORE], ["data", "tiny.yaml", *ELSEWHERE]],
    "texts": [["plan", "tiny.yaml", *STORE], ["data", "tiny.yaml", *ELSEWHERE]],
    "plugin.py": [["plan", "tiny.yaml", *STORE, "--plugin", "plugin.py"], ["zoo", "--plugin", "plugin.py"]],
    "llama/tokenizer.json": [
        ["plan", "tiny.yaml", *STORE, "--set", DATA.replace("TOKENIZER", "{kind: file, path: llama/tokenizer.json}")],
        ["import", "llama", *IMPORT],
    ],
    "llama/*": [["import", "llama", *IMPORT], ["plan", "tiny.yaml", *STORE, "--set", "base={checkpoint: llama}"]],
    "llama": [["import", "llama", *IMPORT]],
    "adapter/*": [["import", "adapter", *IMPORT]],
    "losses.csv": [["compare", "losses.csv"], ["compare", "losses.csv", "--curve", "losses.csv"]],
    "logs/a-s0/trainer_state.json": [["compare", "logs/{arm}-s{seed}/trainer_state.json"]],
    "ids.*": [["plan", "tiny.yaml", *STORE, "--set", IDS]],
    "page.md": [["atlas", "runs", "--out", "exported", "--tables", "page.md"]],
    "archive.zip": [["merge", "archive.zip", *ELSEWHERE], ["merge", "archive.zip", *STORE]],
    "tasks/items.jsonl": [["eval", "RUN", "--tasks", "tasks/own.yaml", "--limit", "2", *STORE]],
    "tasks/own.yaml": [
        ["eval", "RUN", "--tasks", "own", "--include", "tasks", "--limit", "2", *STORE],
        ["eval", "RUN", "--tasks", "tasks/own.yaml", "--limit", "2", *STORE],
        ["import", "llama", "--tasks", "tasks/own.yaml", *IMPORT],
    ],
    "runs/**/*": OF_A_STORE,
    "runs/*": OF_A_STORE,
}


@pytest.fixture(scope="module")
def place(full: Path, trained: Path, study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that commands read, whole."""
    folder = tmp_path_factory.mktemp("hostile")
    shutil.copytree(study.parent, folder, dirs_exist_ok=True)
    shutil.copytree(full, folder / "runs")
    (folder / "plugin.py").write_text(PLUGIN)
    (folder / "losses.csv").write_text("arm,seed,loss\na,0,1.0\na,1,1.1\nb,0,1.2\nb,1,1.25\n")
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = AutoModelForCausalLM.from_config(LlamaConfig(vocab_size=257, **sizes))
    model.save_pretrained(folder / "llama")
    PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer()).save_pretrained(folder / "llama")
    (folder / "adapter").mkdir()
    lora = {"peft_type": "LORA", "base_model_name_or_path": str(folder / "llama"), "r": 2, "lora_alpha": 4}
    (folder / "adapter/adapter_config.json").write_text(json.dumps({**lora, "target_modules": ["q_proj"]}))
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora"
    parts = {f"{name}_A.weight": torch.zeros(2, 16), f"{name}_B.weight": torch.zeros(16, 2)}
    save_file(parts, folder / "adapter/adapter_model.safetensors")
    (folder / "tasks").mkdir()
    (folder / "tasks/own.yaml").write_text(TASK.format(folder=folder))
    (folder / "tasks/items.jsonl").write_text('{"text": "norm"}\n' * 4)
    for name in ("a-s0", "a-s1", "b-s0", "b-s1"):
        (folder / "logs" / name).mkdir(parents=True)
        history = {"log_history": [{"step": step, "eval_loss": 2 - step / 10} for step in (1, 2)]}
        (folder / "logs" / name / "trainer_state.json").write_text(json.dumps(history))
    sizes = np.array([2048, 2048], "<i4"), np.array([0, 4096], "<i8"), np.array([0, 1, 2], "<i8")
    (folder / "ids.bin").write_bytes((np.arange(4096) % 256).astype("<u2").tobytes())
    index = MEGATRON + struct.pack("<QBQQ", 1, 8, 2, 3) + b"".join(each.tobytes() for each in sizes)
    (folder / "ids.idx").write_bytes(index)
    (folder / "page.md").write_text("<!-- results -->\n<!-- end of results -->\n")
    with chdir(folder):
        assert said_by(["pack", "tiny", "--out", "archive.zip", "--store", str(trained)])[0] == 0
        said_by(["plan", "tiny.yaml", *STORE])  # which notes the digests of today, once
    return folder


def files_of(place: Path) -> list[tuple[Path, str]]:
    """Everything that stands in the place, with the pattern that it is of."""
    found = {path: pattern for pattern in COMMANDS for path in sorted(place.glob(pattern)) if path.exists()}
    return list(found.items())


def contents(folder: Path) -> set[tuple[str, int]]:
    """Files and sizes, but for the notes of which files were read, which are nothing's content."""
    found = (Path(root) / name for root, _, names in os.walk(folder) for name in names)
    return {(str(path), path.lstat().st_size) for path in found if not path.name.startswith("checked-")}


@contextmanager
def impatient() -> Iterator[None]:
    """Raises WaitsWithoutEndError in this thread when it has worked for too long, or not at all. A wall clock alone
    tells neither where other programs keep the processors."""

    def raised(_number: int, _frame: FrameType | None) -> None:
        raise WaitsWithoutEndError

    def watch() -> None:
        begun = last = time.process_time()
        while not ended.wait(PATIENCE_SECONDS):
            now = time.process_time()
            if now - last < IDLE_SECONDS or now - begun > PATIENCE_SECONDS:
                signal.pthread_kill(watched, signal.SIGRTMIN)
                return
            last = now

    before, ended, watched = signal.signal(signal.SIGRTMIN, raised), threading.Event(), threading.get_ident()
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        signal.signal(signal.SIGRTMIN, before)


@contextmanager
def in_the_place_of(path: Path, hostile: Hostile, kept: Path) -> Iterator[None]:
    content = path.read_bytes() if path.is_file() else b"{}"
    path.rename(kept)
    try:
        hostile(path, content)
        yield
    finally:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        kept.rename(path)


def tried(place: Path, path: Path, hostile: str, command: list[str], kept: Path) -> None:
    if not path.exists():  # the command of an earlier case had no more use for it, such as an error of a run that ended
        return
    command = [Store(place / "runs").runs()[0] if word == "RUN" else word for word in command]
    case = hostile, str(path.relative_to(place)), command
    with chdir(place), in_the_place_of(path, HOSTILE[hostile], kept):
        before = contents(place)
        with impatient():
            status, error = said_by(command)
        written = contents(place) - before
    assert status in (0, 1, 2), (case, status, error)
    assert "Traceback" not in error, (case, error)
    if status == 2:
        assert error.strip(), case
        assert not written, (case, error, written)
    for name in ("imported", "exported"):
        shutil.rmtree(place / name, ignore_errors=True)


@st.composite
def cases(draw: st.DrawFn, files: list[tuple[Path, str]]) -> tuple[Path, str, list[str]]:
    """A kind of place first: a store has a hundred files."""
    pattern = draw(st.sampled_from(list(COMMANDS)))
    path, of = draw(st.sampled_from([each for each in files if each[1] == pattern] or files))
    return path, draw(st.sampled_from(sorted(HOSTILE))), draw(st.sampled_from(COMMANDS[of]))


@pytest.fixture(autouse=True)
def _no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.filterwarnings("ignore")
def test_hostile_files_are_refused_in_a_line_and_nothing_is_written(place: Path, tmp_path: Path) -> None:
    QUICK(given(case=cases(files_of(place)))(lambda case: tried(place, *case, tmp_path / "kept")))()


@pytest.mark.slow
@pytest.mark.timeout(14400)
@pytest.mark.filterwarnings("ignore")
def test_two_thousand_hostile_files_are_refused_in_a_line_and_nothing_is_written(place: Path, tmp_path: Path) -> None:
    LONG(given(case=cases(files_of(place)))(lambda case: tried(place, *case, tmp_path / "kept")))()
