"""`ablate plan --at`: a study's arms at a published model's full size."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import zoo
from ablate.cli import main
from ablate.study.reading import load_study
from ablate.wings.foretell.roofline import predict
from ablate.wings.foretell.scaling import at_full_size
from evals.costs.devices import device
from zoo.presets import preset

STUDIES = Path(__file__).parents[4] / "studies"
STUDY = """
question: What is cheaper?
base: {preset: small, d_model: 32, block.mixer.heads: 8, blocks: {local: {mixer.window: 64}}}
arms:
  kv4: {block.mixer.kv_heads: 4}
  again: {block.mixer.kv_heads: 2, train.lr: 1e-3}
  swa: {pattern: [local, block]}
  narrow: {blocks.local.mixer.window: 16, pattern: [local]}
  relu: {block.ffn: {kind: relu, d_ff: 4x}}
  fast: {train.lr: 2e-3}
  odd: {d_model: 64, block.mixer: {heads: 3, head_dim: 8}}
data: {source: stdlib, tokenizer: bytes}
budget: {tokens: 2e4}
tune: off
"""


@pytest.fixture
def study(tmp_path: Path) -> str:
    path = tmp_path / "cheaper.yaml"
    path.write_text(STUDY)
    return str(path)


def document(capsys: pytest.CaptureFixture[str], study: str, *arguments: str) -> dict[str, Any]:
    assert main(["plan", study, "--json", *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_arms_are_edits_of_the_model_at_full_size(study: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, study, "--at", "llama3-70b", "--context", "131072", "--device", "h200", "--batch", "2")
    assert (found["prediction"], found["at"], found["dtype"]) == ("roofline", "llama3-70b", "bfloat16")
    assert found["device"]["bandwidth_share"] == 0.69
    arms = {arm["name"]: arm for arm in found["arms"]}
    assert list(arms) == ["llama3-70b", "kv4", "again", "swa", "narrow", "relu", "fast", "odd"]
    published, token = arms["llama3-70b"], 80 * 2 * 128 * 2
    assert published["parameters"] == 70_553_706_496
    assert published["weight_bytes"] == 2 * published["parameters"]
    assert published["cache_bytes"] == 2 * 131_072 * 8 * token
    assert arms["kv4"]["cache_bytes"] == 2 * 131_072 * 4 * token
    assert arms["kv4"]["parameters"] == published["parameters"] - 80 * 2 * 8192 * 4 * 128
    assert arms["kv4"]["decode"]["seconds"] < published["decode"]["seconds"]
    assert arms["swa"]["cache_bytes"] == 2 * (131_072 + 64) * 8 * token // 2
    assert arms["narrow"]["cache_bytes"] == 2 * 16 * 8 * token
    assert arms["narrow"]["largest_context"] is None or not arms["narrow"]["fits"]
    assert arms["relu"]["parameters"] == published["parameters"] + 80 * 8192 * (2 * 4 * 8192 - 3 * 28672)
    assert arms["fast"]["same_as"] == "llama3-70b"
    assert arms["again"]["edits"] == {"block.mixer.kv_heads": 2}
    assert (published["fits"], published["devices"]) == (False, 2)


def test_an_edit_that_is_illegal_there_says_why_in_its_row(study: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--at", "gpt2", "--context", "1024", "--device", "rtx4090"]
    assert main(["plan", str(STUDIES / "gqa_groups.yaml"), *arguments]) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if line.startswith(" kv2 "))
    assert row.endswith("block.mixer.kv_heads: 2 kv heads do not divide 25 heads ")
    assert "Predicted by a roofline: gpt2" in out
    assert "compute 60 % of 165.2 TFLOP/s · memory 69 % of 1.008 TB/s · overhead none" in out
    assert "nvidia-ada-gpu-architecture.pdf" in out
    arms = {arm["name"]: arm for arm in document(capsys, study, *arguments)["arms"]}
    assert arms["again"]["reason"] == "block.mixer.kv_heads: 2 kv heads do not divide 25 heads"
    assert arms["swa"]["decode"]["bound"] == "memory"


def test_a_context_beyond_the_learned_positions_says_so(study: str, capsys: pytest.CaptureFixture[str]) -> None:
    arms = document(capsys, study, "--at", "gpt2", "--context", "2048", "--device", "h100")["arms"]
    assert arms[0]["reason"] == "context: the model reads at most 1024 tokens, not 2048"


def test_a_named_block_of_the_preset_keeps_its_meaning(study: str) -> None:
    of = partial(predict, device=device("h200"), context=4096)
    rows = {row.name: row.prediction for row in at_full_size(load_study(study, "cpu"), preset("gemma3"), of)}
    swa = zoo.load("gemma3", pattern=["local", "block"])
    assert swa.layers[0].mixer.window == 1024
    assert rows["swa"] is not None
    assert rows["swa"].cache_bytes == zoo.cost(swa).cache_bytes(1, 4096, "bfloat16")


def test_this_machine_can_be_the_device(study: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, study, "--at", "small", "--context", "64", "--device", "this", "--dtype", "float32")
    assert found["device"]["shares_source"] == "measured"
    assert found["arms"][0]["decode"]["overhead_seconds"] > 0


def test_what_fits_a_memory(study: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Llama 3 8B in bfloat16: 16.06 GB of weights, and 2 · 32 layers · 8 kv heads · 128 · 2 bytes per token."""
    found = document(capsys, study, "--at", "llama3", "--memory", "80GB")
    assert (found["prediction"], found["memory_bytes"]) == ("fit", 80e9)
    arms = {arm["name"]: arm for arm in found["arms"]}
    free = 0.9 * 80e9 - 2 * 8_030_261_248
    published = {each["context"]: each["batch"] for each in arms["llama3"]["largest_batch"]}
    assert published == {c: int(free // (c * 131_072)) for c in (1024, 8192, 32_768, 131_072)}
    assert published[8192] == 52
    assert arms["llama3"]["largest_context"] == int(free // 131_072)
    assert arms["narrow"]["largest_context"] is None
    assert main(["plan", study, "--at", "llama3", "--memory", "16GB", "--context", "64"]) == 0
    assert "the weights do not fit" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--memory", "80GB"], "--memory needs --at PRESET"),
        (["--at", "llama3", "--memory", "80 apples"], "--memory 80 apples: expected a size such as 80GB or 24GiB"),
        (["--at", "llama3", "--memory", "80"], "--memory 80: a size needs a unit: 80GB or 80GiB"),
        (["--at", "llama3", "--memory", "0GB"], "--memory 0GB: expected a size above 0"),
        (["--at", "llama3", "--memory", "80GB", "--device", "h100"], "--memory cannot be combined with --device"),
        (["--at", "llama3-7b", "--device", "h100"], "--at llama3-7b: unknown preset 'llama3-7b' (did you mean"),
        (["--at", "gpt4", "--device", "h100"], "--at gpt4: 'gpt4' cannot be built"),
        (["--at", "llama3", "--device", "h1000"], "--device: unknown device 'h1000' (did you mean 'h100'?)"),
        (["--at", "llama3"], "--at needs --device: one of a100-40gb, "),
        (["--batch", "2"], "--batch needs --at PRESET"),
        (["--device", "h100"], "--device h100: expected cpu or cuda; other devices need --at PRESET"),
    ],
)
def test_a_mistake_is_one_line(
    study: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", study, *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert message in err
