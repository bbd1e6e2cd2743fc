"""Low-rank adapters: ours load in peft, and peft's load here, with the same logits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

import zoo
from ablate.training.lora import Adapters, LoraSpec
from tests.zoo.hf import parity
from zoo.hf import save_adapters

FAMILIES = ("llama", "qwen2", "qwen3", "gemma2", "gemma3_text", "olmo2", "gpt2", "gpt_neox", "phi3", "mistral", "opt")
"""Plain matrices, transposed ones, and queries, keys and values, or gate and up, in one."""
QUICK = ("llama", "gpt2", "phi3")
"""Tried in every session: one of each."""
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
"""peft asks transformers in a way that is deprecated."""


@pytest.mark.parametrize(
    "family", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES]
)
def test_adapters_load_in_peft_and_peft_saves_what_loads_here(family: str, tmp_path: Path) -> None:
    model = zoo.from_hf(parity.hf_model(parity.draw(family, 0)))
    tokens = parity.tokens_for(parity.draw(family, 0), 2)
    base = {name: value.clone() for name, value in model.state_dict().items()}
    adapters = Adapters(model, LoraSpec(rank=3, alpha=5.0), seed=1)
    with torch.no_grad():
        for number, layer in enumerate(adapters.layers):
            layer.up.copy_(0.3 * torch.randn(layer.up.shape, generator=torch.Generator().manual_seed(number)))
        expected = model(tokens)
        adapters.merge()
        torch.testing.assert_close(model(tokens), expected, rtol=1e-3, atol=1e-4)
        tensors = adapters.tensors()
        model.load_state_dict(base)
        assert (model(tokens) - expected).abs().max() > 0.01
    pairs = {name: (tensors[f"{name}.down"], tensors[f"{name}.up"]) for name in adapters.names}
    save_adapters(model, pairs, 5.0, tmp_path / "ours")
    theirs = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(tmp_path / "ours" / "base"), tmp_path / "ours"
    )
    with torch.no_grad():
        parity.assert_near(theirs.eval()(tokens).logits, expected)
        theirs.save_pretrained(tmp_path / "theirs")
        parity.assert_near(zoo.from_hf(tmp_path / "theirs")(tokens), expected)


def test_an_adapter_that_peft_trained_loads_here(tmp_path: Path) -> None:
    """Rank-stabilised, on some matrices alone."""
    parity.hf_model(parity.draw("llama", 0)).save_pretrained(tmp_path / "base")
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    config = LoraConfig(
        r=4, lora_alpha=3, target_modules=["q_proj", "down_proj"], use_rslora=True, init_lora_weights=False
    )
    theirs, tokens = get_peft_model(base, config).eval(), parity.tokens_for(base.config, 2)
    theirs.save_pretrained(tmp_path / "adapter")
    with torch.no_grad():
        parity.assert_near(zoo.from_hf(tmp_path / "adapter")(tokens), theirs(tokens).logits)


def test_what_cannot_be_merged_is_named(tmp_path: Path) -> None:
    parity.hf_model(parity.draw("llama", 0)).save_pretrained(tmp_path / "base")
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    get_peft_model(base, LoraConfig(target_modules=["q_proj"], use_dora=True)).save_pretrained(tmp_path / "adapter")
    with pytest.raises(zoo.UnsupportedError, match=r"use_dora: True in .* cannot be merged, only False"):
        zoo.from_hf(tmp_path / "adapter")
