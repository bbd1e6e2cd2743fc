"""Low-rank adapters: ours load in peft, and peft's load here, with the same logits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, MixtralConfig

import zoo
from ablate.wings.starts.lora import Adapters, LoraSpec
from tests.zoo.hf import parity
from zoo.hf import save_adapters, spec_of

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


TINY = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
TINY |= {"num_attention_heads": 2, "num_key_value_heads": 2, "bos_token_id": None, "eos_token_id": None}
TIED = LlamaConfig(**TINY, attention_bias=True, tie_word_embeddings=True)
EXPERTS = MixtralConfig(**TINY, num_local_experts=3, num_experts_per_tok=2)
KINDS: dict[str, dict[str, Any]] = {
    "rank-stabilised": {"use_rslora": True},
    "ranks of their own": {"rank_pattern": {"q_proj": 3}, "alpha_pattern": {"layers.0.self_attn.q_proj": 7}},
    "one layer": {"layers_to_transform": [1], "layers_pattern": "layers"},
    "PiSSA": {"init_lora_weights": "pissa"},
    "OLoRA": {"init_lora_weights": "olora"},
    "orthogonal": {"init_lora_weights": "orthogonal"},
    "DoRA": {"use_dora": True},
    "biases": {"bias": "all"},
    "biases of adapters": {"lora_bias": True, "target_modules": ["q_proj"]},
    "a tied head": {"target_modules": ["q_proj", "lm_head"]},
    "DoRA on a tied head": {"target_modules": ["lm_head"], "use_dora": True},
    "a tied table": {"target_modules": ["q_proj", "embed_tokens"]},
    "a tied head and its table": {"target_modules": ["lm_head"], "ensure_weight_tying": True},
    "a trained head": {"modules_to_save": ["lm_head"]},
    "a trained table": {"modules_to_save": ["embed_tokens"]},
    "a trained norm": {"modules_to_save": ["norm"]},
    "trained tokens": {"trainable_token_indices": [1, 2]},
    "experts": {"target_modules": ["q_proj"], "target_parameters": ["mlp.experts.gate_up_proj"]},
}
"""Every kind of adapter that peft computes by a change of the weights."""


def trained(folder: Path, **settings: Any) -> None:
    """A base and an adapter of it whose every trained tensor has moved from where it started."""
    settings = {"target_modules": ["q_proj", "down_proj"], "r": 2, "lora_alpha": 3, **settings}
    parity.hf_model(EXPERTS if "target_parameters" in settings else TIED).save_pretrained(folder / "base")
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(folder / "base"), LoraConfig(**settings))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    adapted.save_pretrained(folder / "adapter")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_a_merged_adapter_has_pefts_own_logits(kind: str, tmp_path: Path) -> None:
    trained(tmp_path, **KINDS[kind])
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    tokens = parity.tokens_for(base.config, 2)
    with torch.no_grad():
        plain = base(tokens).logits
        expected = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()(tokens).logits
        ours = zoo.from_hf(tmp_path / "adapter")
        parity.assert_near(ours(tokens), expected)
        assert (expected - plain).abs().max() > 0.01
    assert spec_of(tmp_path / "adapter") == ours.spec


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"alora_invocation_tokens": [3, 4]}, "alora_invocation_tokens"),
        ({"layer_replication": [[0, 2], [1, 2]]}, "layer_replication"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights"),
        ({"peft_type": "IA3"}, "peft_type"),
        ({"never_heard_of": 3}, "never_heard_of"),
    ],
    ids=str,
)
def test_what_cannot_be_merged_is_named(settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    trained(tmp_path)
    path = tmp_path / "adapter" / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    for convert in (zoo.from_hf, spec_of):
        with pytest.raises(zoo.UnsupportedError, match=rf"^{said}: .*{path}.*: convert a model that peft") as refused:
            convert(path.parent)
        assert len(str(refused.value).splitlines()) == 1


def test_unknown_keys_that_are_off_say_nothing(tmp_path: Path) -> None:
    trained(tmp_path)
    path = tmp_path / "adapter" / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "of_tomorrow": None, "another": False}))
    zoo.from_hf(path.parent)


def drop(path: Path) -> None:
    weights = load_file(path)
    del weights[min(weights)]
    save_file(weights, path, {"format": "pt"})


def add(path: Path) -> None:
    save_file({**load_file(path), "base_model.model.elsewhere.lora_A.weight": torch.ones(2, 2)}, path)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a tensor is missing": (drop, r"lora_A.*: missing from .*safetensors \(1 in total\)"),
    "a tensor has no place": (add, r"elsewhere\.lora_A.*: unexpected in .*safetensors \(1 in total\)"),
    "another shape": (
        lambda path: save_file({key: value[:1] for key, value in load_file(path).items()}, path),
        "peft cannot load it: .*size mismatch",
    ),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-50]), "safetensors cannot be read|peft cannot load it"),
    "gone": (lambda path: path.unlink(), r"has no adapter_model\.safetensors"),
    "a list for a config": (
        lambda path: path.with_name("adapter_config.json").write_text("[]"),
        "must hold a JSON object, not list",
    ),
    "Latin-1": (lambda path: path.with_name("adapter_config.json").write_bytes(b"{'\xe9'}"), "cannot be read"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_adapter_is_one_line(damage: str, tmp_path: Path) -> None:
    trained(tmp_path)
    change, said = DAMAGES[damage]
    change(tmp_path / "adapter" / "adapter_model.safetensors")
    with pytest.raises(zoo.UnsupportedError, match=said) as refused:
        zoo.from_hf(tmp_path / "adapter")
    assert str(tmp_path / "adapter") in str(refused.value) and len(str(refused.value).splitlines()) == 1


def test_weights_in_a_pickle_are_read_without_its_code(tmp_path: Path) -> None:
    trained(tmp_path)
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    expected = zoo.from_hf(path.parent).state_dict()
    torch.save(load_file(path), path.with_suffix(".bin"))
    path.unlink()
    found = zoo.from_hf(path.parent).state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())
