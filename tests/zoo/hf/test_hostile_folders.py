"""Folders made to do damage: none of their code runs, and each is refused with one message."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import zoo
from ablate.data.tokenizers.bytes import byte_tokenizer
from ablate.wings.starts.checkpoints import Checkpoint, CheckpointError
from tests.zoo.hf import parity


class Code:
    """Unpickling it touches a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.mark}",)


def config(folder: Path, **changes: object) -> None:
    parity.draw("llama", 0).save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def bare_pickle(folder: Path, mark: Path) -> None:
    config(folder)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Code(mark)))


def pickle_of_torch(folder: Path, mark: Path) -> None:
    config(folder)
    torch.save({"model.norm.weight": Code(mark)}, folder / "pytorch_model.bin")


def distinct_code(folder: Path, mark: Path) -> None:
    config(folder, model_type="own", auto_map={"AutoConfig": "own.C", "AutoModelForCausalLM": "own.M"})
    (folder / "own.py").write_text(f"open({str(mark)!r}, 'w')\nclass C: pass\nclass M: pass\n")


def weights_elsewhere(folder: Path, _mark: Path) -> None:
    config(folder)
    weights = {"metadata": {}, "weight_map": {"model.norm.weight": "../../../etc/passwd"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(weights))


def endless_config(folder: Path, _mark: Path) -> None:
    (folder / "config.json").symlink_to("/dev/zero")


def deep_config(folder: Path, _mark: Path) -> None:
    (folder / "config.json").write_text("[" * 100_000)


def of(**changes: object) -> Callable[[Path, Path], None]:
    return lambda folder, _mark: config(folder, **changes)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "made",
    [
        *(bare_pickle, pickle_of_torch, distinct_code, weights_elsewhere, endless_config, deep_config),
        *(of(hidden_size="x"), of(model_type=["x"]), of(architectures=7), of(hidden_size=-16), of(hidden_size=10**12)),
    ],
)
def test_a_hostile_folder_is_refused_and_runs_nothing(
    made: Callable[[Path, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, mark = tmp_path / "model", tmp_path / "mark"
    folder.mkdir()
    made(folder, mark)
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked on the terminal"))
    with pytest.raises(zoo.UnsupportedError) as refused:
        zoo.from_hf(folder)
    assert str(folder) in str(refused.value) and len(str(refused.value).splitlines()) == 1
    assert not mark.exists()


def endless(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("spec.json", lambda path: path.write_text("[" * 100_000), "nested too deeply"),
        ("spec.json", lambda path: path.write_text("{"), "spec.json: Expecting"),
        ("spec.json", endless, "is not a regular file"),
        ("origin.json", lambda path: path.write_bytes(b"\xff"), "origin.json: "),
        (
            "weights.safetensors",
            lambda path: path.write_bytes(b"torn"),
            "weights.safetensors: Error",
        ),
        ("weights.safetensors", lambda path: save_file({"a": torch.ones(1)}, path), "Missing key"),
    ],
)
def test_a_damaged_saved_model_is_one_line(
    name: str, change: Callable[[Path], object], said: str, tmp_path: Path
) -> None:
    zoo.save(zoo.build(zoo.parse({"vocab_size": 16, "d_model": 16, "n_layers": 1})), tmp_path)
    change(tmp_path / name)
    with pytest.raises(zoo.SpecError, match=said) as refused:
        zoo.open(tmp_path)
    assert str(tmp_path) in str(refused.value) and len(str(refused.value).splitlines()) == 1


def test_a_device_is_no_file_of_weights(tmp_path: Path) -> None:
    """The device is refused, since hashing it would never end."""
    config(tmp_path)
    endless(tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="has no weights"):
        Checkpoint.at(tmp_path, Path())


def resized(folder: Path) -> None:
    model = parity.hf_model(parity.draw("llama", 0))
    vocab = model.config.vocab_size
    model.resize_token_embeddings(vocab + 8)
    model.save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "vocab_size": vocab}))


def with_nan(folder: Path) -> None:
    model = parity.hf_model(parity.draw("llama", 0))
    with torch.no_grad():
        model.model.norm.weight[1] = float("nan")
    model.save_pretrained(folder)


def index(folder: Path, weight_map: object) -> None:
    parity.hf_model(parity.draw("llama", 0)).save_pretrained(folder)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def beside(folder: Path) -> None:
    """Weights in another folder, which are there."""
    parity.hf_model(parity.draw("llama", 0)).save_pretrained(folder, max_shard_size="1KB")
    path = folder / "model.safetensors.index.json"
    found = json.loads(path.read_text())
    first = next(iter(found["weight_map"].values()))
    (folder / first).rename(folder.parent / first)
    moved = {key: f"../{first}" if name == first else name for key, name in found["weight_map"].items()}
    path.write_text(json.dumps({**found, "weight_map": moved}))


def tokenizer_config(folder: Path, content: bytes) -> None:
    parity.hf_model(parity.draw("llama", 0)).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(byte_tokenizer().to_str())
    (folder / "tokenizer_config.json").write_bytes(content)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("made", "said"),
    [
        (resized, r"lm_head\.weight: has the shape .*: set vocab_size to \d+"),
        (with_nan, r"model\.norm\.weight: contains infinities or NaN"),
        (lambda folder: index(folder, None), r"weight_map: .*index\.json must map tensor names to file names"),
        (lambda folder: index(folder, ["a"]), r"weight_map: .*index\.json must map tensor names to file names"),
        (beside, r"weight_map: .*index\.json names '\.\./model.*', which is not in the same folder"),
        (lambda folder: tokenizer_config(folder, b'{"eos_token": "\xe9"}'), r"tokenizer_config\.json is not UTF-8"),
    ],
)
def test_a_damaged_checkpoint_is_one_line(made: Callable[[Path], None], said: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    made(folder)
    with pytest.raises(zoo.SpecError, match=said) as refused:
        zoo.from_hf(folder)
    assert str(folder) in str(refused.value) and len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("content", [b"[]", b"null", b'{"eos_token": "\xe9"}', b"[" * 100_000, b"{"])
def test_a_tokenizer_config_that_is_none_is_one_line(content: bytes, tmp_path: Path) -> None:
    tokenizer_config(tmp_path, content)
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json") as refused:
        assert Checkpoint.at(tmp_path, Path()).tokenizer
    assert len(str(refused.value).splitlines()) == 1


def test_a_model_of_sentencepiece_is_a_tokenizer(tmp_path: Path) -> None:
    config(tmp_path)
    checkpoint = Checkpoint(tmp_path)
    (tmp_path / "vocab.json").write_text("{}")
    assert checkpoint.tokenizer is None
    assert checkpoint.without_tokenizer.endswith("and no vocab.json with merges.txt")
    (tmp_path / "merges.txt").write_text("")
    assert checkpoint.tokenizer == {"kind": "transformers", "path": str(tmp_path)}
    (tmp_path / "tokenizer.model").write_bytes(b"")
    assert checkpoint.tokenizer == {"kind": "sentencepiece", "path": str(tmp_path / "tokenizer.model")}
