"""Checkpoints in folders: what transformers saved in shards is the same model, and what is damaged is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import zoo
from tests.zoo.hf import parity
from zoo.hf import spec_of

TEN = ("llama", "qwen2", "qwen3", "gemma2", "gemma3_text", "olmo2", "gpt2", "gpt_neox", "phi3", "mixtral", "opt")
QUICK = ("llama", "gpt2", "phi3", "mixtral")
"""Tried in every session."""


def saved(folder: Path, family: str, dtype: torch.dtype = torch.float32) -> Any:
    model = parity.hf_model(parity.draw(family, 0)).to(dtype)
    model.save_pretrained(folder, max_shard_size="1KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    return model


@pytest.mark.parametrize(
    "family", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in TEN]
)
def test_a_sharded_folder_is_the_model_that_was_saved(family: str, tmp_path: Path) -> None:
    model = saved(tmp_path, family)
    ours, tokens = zoo.from_hf(tmp_path), parity.tokens_for(model.config, 2)
    with torch.no_grad():
        parity.assert_near(ours(tokens), model(tokens, use_cache=False).logits)
    assert spec_of(tmp_path) == ours.spec
    again = tmp_path / "again"
    zoo.to_hf(ours).save_pretrained(again)
    for name, value in zoo.from_hf(again).state_dict().items():
        assert torch.equal(value, ours.state_dict()[name])


def test_weights_keep_their_type(tmp_path: Path) -> None:
    model = saved(tmp_path, "llama", torch.bfloat16)
    found = zoo.from_hf(str(tmp_path)).embedding.weight
    assert found.dtype == torch.bfloat16 and torch.equal(found, model.get_input_embeddings().weight)


def test_a_missing_tensor_is_not_drawn_at_random(tmp_path: Path) -> None:
    parity.hf_model(parity.draw("llama", 0)).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    del weights["model.norm.weight"]
    save_file(weights, path, {"format": "pt"})
    with pytest.raises(zoo.UnsupportedError, match=r"model.norm.weight: missing from .* \(1 in total\)"):
        zoo.from_hf(tmp_path)


def test_quantised_weights_are_refused(tmp_path: Path) -> None:
    parity.draw("llama", 0).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": {"quant_method": "gptq"}}))
    with pytest.raises(zoo.UnsupportedError, match="quantised weights cannot be converted"):
        spec_of(tmp_path)


def test_a_folder_without_a_model_says_so(tmp_path: Path) -> None:
    with pytest.raises(zoo.UnsupportedError, match="has no config"):
        zoo.from_hf(tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
@pytest.mark.parametrize("value", ["flash_attention_2", "flash_attention_3", "kernels-community/flash-attn", "eager"])
def test_the_attention_that_a_config_asks_for_is_not_looked_for(key: str, value: str, tmp_path: Path) -> None:
    """It has no bearing on the weights, and may need a package, a GPU or a download."""
    AutoModelForCausalLM.from_config(parity.draw("llama", 0)).save_pretrained(tmp_path)
    expected = zoo.from_hf(tmp_path).state_dict()
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    found = zoo.from_hf(tmp_path).state_dict()
    assert all(torch.equal(found[name], each) for name, each in expected.items())
