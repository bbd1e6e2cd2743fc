"""Small configs shaped as publishers ship them: keys that transformers does not know, names of other versions,
leftovers of other libraries. Each is converted with transformers' own logits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig

import zoo
from tests.zoo.hf.parity import assert_near, hf_model, tokens_for
from zoo.hf import _proof, families, native, spec_of
from zoo.hf._keyed import LlamaLike

PUBLISHED = Path(__file__).with_name("published")
NAMES = sorted(path.stem for path in PUBLISHED.glob("*.json"))
PLAINER = {
    "codegen": "gptj",
    "cwm": "smollm3",
    "glm4_moe_lite": "deepseek_v3",
    "helium": "ernie4_5",
    "hy_v3": "dots1",
    "internlm3": "llama",
    "iquestcoder": "llama",
    "jais2": "starcoder2",
    "ministral": "smollm3",
    "mt5": "t5",
    "phi3": "mistral",
    "qwen3_5_moe_text": "qwen3_next",
    "qwen3_5_text": "qwen3_next",
    "seed_oss": "qwen2",
    "solar_open": "glm4_moe",
    "youtu": "deepseek_v2",
}
"""Families that the published model of another needs no more than: its own config is for what it does not use."""


def published(name: str, folder: Path, **changes: Any) -> Any:
    """A model of the published config with random weights, saved in a folder beside the config as it was published."""
    settings = json.loads((PUBLISHED / f"{name}.json").read_text()) | {"torch_dtype": "float32", "dtype": "float32"}
    text = json.dumps(settings | changes)
    (folder / "config.json").write_text(text)
    model = hf_model(AutoConfig.from_pretrained(folder))
    model.save_pretrained(folder)
    (folder / "config.json").write_text(text)
    return model


@torch.no_grad()
@pytest.mark.filterwarnings("ignore::zoo.errors.ConversionWarning")
@pytest.mark.filterwarnings("ignore:.rope_scaling. is deprecated:FutureWarning")
@pytest.mark.parametrize("name", NAMES)
def test_a_published_config_is_converted_exactly(name: str, tmp_path: Path) -> None:
    model = published(name, tmp_path)
    ours, tokens = zoo.from_hf(tmp_path), tokens_for(model.config, 2)
    assert spec_of(tmp_path) == ours.spec
    if model.config.is_encoder_decoder:
        expected = model(input_ids=tokens, decoder_input_ids=tokens).logits
        assert_near(ours(tokens, encoder_tokens=tokens), expected)
        return
    assert_near(ours(tokens), model(tokens).logits)


def test_keys_that_nobody_declares_are_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_proof, "SAID", set())
    published("llama_unsloth", tmp_path)
    said = "^llama: ignored keys that .*: unsloth_fixed, unsloth_version, use_flash_attn$"
    with pytest.warns(zoo.ConversionWarning, match=said) as warned:
        zoo.from_hf(tmp_path)
        spec_of(tmp_path)
    assert len(warned) == 1


KNOWN_TO_THE_CODE = {
    "gemma2": {"use_bidirectional_attention": True},
    "gemma4_text": {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 8},
    "gemma4_unified_text": {"use_bidirectional_attention": "all"},
    "qwen3": {"quantization_config": {"quant_method": "gptq"}},
    "llama": {"sliding_window": 8},
    "mixtral": {"router_jitter_noise": 0.1},
    "olmo2": {"layer_types": ["sliding_attention", "full_attention"]},
}
"""Keys that transformers' code of the model reads, some although the class does not declare them."""


@pytest.mark.parametrize("name", KNOWN_TO_THE_CODE)
def test_a_key_that_means_something_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    changes = KNOWN_TO_THE_CODE[name]
    key = next(iter(changes))
    settings = json.loads((PUBLISHED / f"{name}.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(settings | changes))
    with pytest.raises(zoo.UnsupportedError, match=rf"^{key}: .*config\.json") as refused:
        spec_of(tmp_path)
    assert len(str(refused.value).splitlines()) == 1
    assert refused.value.path == key


def test_a_conversion_proves_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A family that reads a config wrongly, as another version of transformers may have it, is found out."""
    published("llama", tmp_path)
    monkeypatch.setattr(LlamaLike, "norm", lambda _family, _config: {"kind": "rmsnorm", "eps": 0.5})
    with pytest.raises(zoo.UnsupportedError, match=r"its logits differ from those of transformers by 0\.\d+ of"):
        zoo.from_hf(tmp_path)


def test_every_family_has_a_published_config() -> None:
    assert {json.loads((PUBLISHED / f"{name}.json").read_text())["model_type"] for name in NAMES} >= set(families())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::zoo.errors.ConversionWarning")
@pytest.mark.filterwarnings("ignore:.rope_scaling. is deprecated:FutureWarning")
def test_a_model_goes_to_its_own_family_or_to_a_plainer_one(tmp_path: Path) -> None:
    """Where it is not known that it came from one: a family that is added takes no model from those before."""
    chosen = {}
    for name in NAMES:
        (tmp_path / "config.json").write_text((PUBLISHED / f"{name}.json").read_text())
        chosen[name], _ = native(zoo.parse(spec_of(tmp_path).dump()))
    own = {name: json.loads((PUBLISHED / f"{name}.json").read_text())["model_type"] for name in NAMES}
    assert chosen == own | PLAINER
