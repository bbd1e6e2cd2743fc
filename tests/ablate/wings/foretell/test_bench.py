"""`ablate bench`: what it says of two libraries that run one model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import zoo
from ablate.cli import main
from ablate.wings.foretell import bench
from ablate.wings.foretell.bench import OURS, THEIRS, BenchSetting, BenchTurn, Ceilings, compare, share
from ablate.wings.foretell.rivals import LIBRARIES, rivals

SMALL = ["--set", "d_model=32", "--set", "n_layers=2", "--set", "vocab_size=64"]
QUICK = ["--context", "16", "--batch", "2", "--rounds", "2"]


pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # of other libraries, when they load


@pytest.fixture(autouse=True)
def _transformers() -> None:
    pytest.importorskip("transformers")


def test_a_model_that_cannot_fit_is_refused_before_it_is_built(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "llama3-405b", "--device", "cpu"]) == 2
    assert "405.9 B parameters needs at least 4,536 GiB, but cpu has" in capsys.readouterr().err


def test_both_run_the_same_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plot = tmp_path / "bench.html"
    assert main(["bench", *SMALL, *QUICK, "--json", "--device", "cpu", "--plot", str(plot)]) == 0
    assert "share of the machine" in plot.read_text()
    found = json.loads(capsys.readouterr().out)
    assert found["largest_difference"] < 1e-4
    assert set(found["phases"]) == {"train", "prefill", "decode"}
    for phase in found["phases"].values():
        assert phase["ratio"]["median"] > 0
        assert phase["attention"] == "fused"
        for side in (OURS, THEIRS):
            speed = phase[side]["tokens_per_second"]
            assert 0 < speed["q25"] <= speed["median"] <= speed["q75"]
            assert phase[side]["share_of_ceiling"] > 0


def test_turns_alternate_and_the_first_round_is_not_counted() -> None:
    """Turns that take 1, 2, 3 … seconds: the ratio of each round, by hand."""
    order: list[bool] = []
    model = zoo.build(zoo.load("small", d_model=32, n_layers=1, vocab_size=64, embedding_scale=1.0))

    def turn(phase: str, work: bench.Work, tokens: torch.Tensor) -> BenchTurn:
        order.append("Ours" in getattr(work, "__qualname__", ""))
        return BenchTurn(float(len(order)), 2**20 * len(order), set())

    found = compare(model, BenchSetting(context=8, batch=2, rounds=2), turn)["phases"]["prefill"]
    assert order[:6] == [False, True, True, False, False, True]
    assert found["ratio"]["median"] == pytest.approx((4 / 3 + 5 / 6) / 2)
    assert found[OURS]["tokens_per_second"]["median"] == pytest.approx((16 / 3 + 16 / 6) / 2)
    assert found[THEIRS]["peak_growth_bytes"] == 5 * 2**20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["llama9"], "unknown preset 'llama9' (did you mean"),
        (["--set", "d_model"], "--set d_model: expected key=value"),
        (["--set", "d_modl=3"], "d_modl"),
        ([*SMALL, "--set", "block.mixer={kind: retention}"], "transformers has no such model"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments, *QUICK, "--device", "cpu"]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert message in err


def test_shares_are_of_products_and_of_bytes() -> None:
    """Shares equal counts by hand: 6 FLOPs a matrix weight and 12 d H a visible score in training; bytes of weights and
    of the cache."""
    spec = zoo.load("small", d_model=32, n_layers=1, vocab_size=64)
    matrices = sum(p.numel() for name, p in zoo.build(spec).named_parameters() if p.dim() == 2)
    top = Ceilings(1e9, 1e6)
    train = share("train", spec, 15, 2, torch.float32, 1000.0, top)
    assert train == pytest.approx(1000 * (6 * matrices + 12 * 32 * 8) / 1e9)
    assert share("prefill", spec, 15, 2, torch.float32, 1000.0, top) == pytest.approx(train / 3)
    decode = share("decode", spec, 15, 2, torch.bfloat16, 1000.0, top)
    read = decode * 1e6 / (1000 / 2)
    cache = 2 * 2 * 32 * 15 * 2
    assert read == pytest.approx(2 * sum(p.numel() for p in zoo.build(spec).parameters()) + cache, rel=0.01)


def test_a_checkpoint_in_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "measured", lambda *_: Ceilings(1e9, 1e9))  # which takes seconds
    model = zoo.build(zoo.load("small", d_model=32, n_layers=2, vocab_size=64, embedding_scale=1.0))
    zoo.save(model, tmp_path)
    assert main(["bench", str(tmp_path), *QUICK, "--json", "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parameters"] == sum(each.numel() for each in model.parameters())
    assert main(["bench", str(tmp_path), *QUICK, "--set", "d_model=16"]) == 2
    assert "only presets can be edited, not a checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("edits", [{}, {"block.mixer.kv_heads": 2, "tie_embeddings": False}], ids=str)
def test_other_libraries_train_the_same_shape(name: str, edits: dict[str, Any]) -> None:
    """The other library's model has as many matrix weights as ours."""
    pytest.importorskip(LIBRARIES[name][0])
    model = zoo.build(zoo.load("small", d_model=64, n_layers=2, vocab_size=128, embedding_scale=1.0, **edits))
    rival = dict(rivals(zoo.to_hf(model).config, 16))[name]
    matrices, theirs = (
        sorted(tuple(sorted(p.shape)) for p in each.parameters() if p.dim() == 2) for each in (model, rival)
    )
    assert sum(a * b for a, b in theirs) == sum(a * b for a, b in matrices)
    assert rival(torch.zeros(2, 16, dtype=torch.long)).shape == (2, 16, 128)
