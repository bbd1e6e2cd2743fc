"""A corpus small enough to learn in a second, and the requests that train on it."""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import zoo
from ablate.cli import main
from ablate.data.corpus import HeldOutRows
from ablate.machine.numerics import enforce
from ablate.running import rehearsal
from ablate.training.spec import TrainSpec
from evals.costs import peaks
from evals.costs.peaks import peak_flops_per_second
from store.documents import RunData, RunDocument


class TinyCorpus:
    """The pattern 0 1 2 … 15 over and over: the next token follows from the last."""

    vocab_size = 16
    eos = 0

    def batch(self, step: int, *, batch: int, context: int, seed: int) -> np.ndarray[Any, Any]:
        starts = np.random.default_rng((seed, step)).integers(self.vocab_size, size=(batch, 1))
        return (starts + np.arange(context + 1)) % self.vocab_size

    def held_out_rows(self, _part: str, context: int) -> list[HeldOutRows]:
        """Six windows, each a document of its own, whatever the part."""
        starts = np.arange(6)[:, None]
        windows = (starts + np.arange(context + 1)) % self.vocab_size
        return [HeldOutRows(windows, np.broadcast_to(starts, windows.shape), np.ones_like(windows))]


@functools.cache
def _measured(_settings: tuple[Any, ...], *how: Any, **options: Any) -> float:
    return peak_flops_per_second(*how, **options)


def measured_once(*how: Any, **options: Any) -> float:
    """The speed of the machine's products, under the settings in force."""
    return _measured((torch.get_num_threads(), torch.get_float32_matmul_precision()), *how, **options)


@pytest.fixture(autouse=True)
def _speed_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every plan and every run measures it, which takes longer than to train a toy, and no question here is of it."""
    monkeypatch.setattr(peaks, "peak_flops_per_second", measured_once)


@pytest.fixture(autouse=True)
def _speeds_in_two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arms are timed against each other in five: each takes seconds to start, and two show all that several do."""
    monkeypatch.setattr(rehearsal, "PROCESSES", 2)


@pytest.fixture
def corpus() -> TinyCorpus:
    return TinyCorpus()


@pytest.fixture
def numerics():
    return enforce("cpu", "float32")


def identity_of(*, steps: int = 20, seed: int = 0, model: dict | None = None, **train: Any) -> RunDocument:
    """The identity of a run of a tiny model."""
    spec = zoo.parse({"vocab_size": 16, "d_model": 16, "n_layers": 1, **(model or {})})
    settings = TrainSpec.model_validate({"context": 16, "batch": 4, "lr": 0.01, **train})
    run = RunDocument(
        digest="",
        seed=seed,
        model=spec.dump(),
        train=settings.model_dump(mode="json"),
        steps=steps,
        data=RunData(digest="tiny"),
        numerics=enforce("cpu", settings.dtype).identity(),
    )
    digest = hashlib.sha256(run.model_dump_json().encode()).hexdigest()[:16]
    return run.model_copy(update={"digest": digest})


@pytest.fixture
def identity():
    return identity_of


STUDY = """
question: Does the placement of norms matter?
baseline: pre
base: {preset: small, d_model: 16, n_layers: 1}
arms:
  post: {block.norm_placement: post}
seeds: 2
data: {source: files, paths: ["texts/*.txt"], tokenizer: bytes, validation_tokens: 256, validation_fraction: 0.15}
train: {context: 32, batch: 4, lr: 1e-2}
budget: {tokens: 2560}
measure: null
pilot: false
evals: null
tune: off
"""


@pytest.fixture(scope="session")
def study(tmp_path_factory) -> Path:
    """A study of 2 arms × 2 seeds × 20 steps, with its texts beside it."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "texts").mkdir()
    words = np.random.default_rng(0).choice(["norm", "scale", "residual", "stream", "head"], (40, 60))
    for number, text in enumerate(words):
        (folder / "texts" / f"{number}.txt").write_text(" ".join(text))
    (folder / "tiny.yaml").write_text(STUDY)
    return folder / "tiny.yaml"


@pytest.fixture(scope="session")
def trained(study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which the tiny study is done."""
    store = tmp_path_factory.mktemp("trained") / "runs"
    assert main(["run", str(study), "--store", str(store), "--engine", "inprocess"]) == 0
    return store


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "runs")


@pytest.fixture(scope="session")
def full(trained: Path, study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with every kind of file. Tests put back what they change."""
    from tests.ablate.full_store import fill  # noqa: PLC0415 (few tests need it)

    return fill(trained, study, tmp_path_factory.mktemp("full"))


def metrics_without_clock(path: Path) -> list[dict[str, Any]]:
    """The records of a metrics file, without what the clock says."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    clock = {"seconds", "tokens_per_second", "seal"}  # a seal covers the others
    return [{k: v for k, v in record.items() if k not in clock} for record in records]
