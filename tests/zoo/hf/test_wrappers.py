"""Language models inside models that read images or sound: the text model is loaded, with the whole model's logits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText

import zoo
from tests.zoo.hf.parity import assert_near, eager, hf_model, tokens_for
from zoo.hf import spec_of

PUBLISHED = Path(__file__).with_name("published")
SIGLIP = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
SIGHT: dict[str, dict[str, Any]] = {
    "gemma3": {**SIGLIP, "image_size": 28, "patch_size": 14},
    "llama4": {**SIGLIP, "image_size": 28, "patch_size": 14, "vision_output_dim": 16}
    | {"projector_input_dim": 16, "projector_output_dim": 16},
    "mistral3": {**SIGLIP, "model_type": "pixtral", "head_dim": 8, "image_size": 28, "patch_size": 14},
    "qwen3_5": {"hidden_size": 16, "intermediate_size": 24, "depth": 1, "num_heads": 2, "out_hidden_size": 32},
    "qwen3_5_moe": {"hidden_size": 16, "intermediate_size": 24, "depth": 1, "num_heads": 2, "out_hidden_size": 32},
    "kimi_k25": {**SIGLIP, "patch_size": 14},
}
"""Vision configs, tiny."""
TEXT = {"gemma3": "gemma3_text", "llama4": "llama4_text", "mistral3": "mistral", "qwen3_5": "qwen3_5_text"}
TEXT |= {"kimi_k25": "kimi_k2", "gemma3n": "gemma3n_text", "qwen3_5_moe": "qwen3_5_moe_text"}
"""Published configs of the text models inside."""
PREFIXES = (("model.language_model.", "lm_head."), ("language_model.model.", "language_model.lm_head."))
"""Names of their weights, as transformers saves them and as publishers did."""


def text(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((PUBLISHED / f"{TEXT[name]}.json").read_text())
    return found | {"torch_dtype": "float32", "dtype": "float32"}


def whole(name: str) -> Any:
    """A tiny model with its tower of images, whose every parameter is random."""
    inner = text(name)
    tied = inner["tie_word_embeddings"]
    config = AutoConfig.for_model(name, text_config=inner, vision_config=SIGHT[name], tie_word_embeddings=tied)
    config.dtype = torch.float32
    torch.manual_seed(0)
    model = eager(AutoModelForImageTextToText.from_config(config))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


@torch.no_grad()
@pytest.mark.filterwarnings("ignore::zoo.errors.ConversionWarning")
@pytest.mark.parametrize("name", SIGHT)
def test_the_text_model_inside_has_the_logits_of_the_whole(name: str, tmp_path: Path) -> None:
    model = whole(name)
    model.save_pretrained(tmp_path)
    ours, tokens = zoo.from_hf(tmp_path), tokens_for(model.config.text_config, 2)
    assert_near(ours(tokens), model(input_ids=tokens).logits)
    assert spec_of(tmp_path) == ours.spec
    again = zoo.to_hf(ours)
    assert_near(again(tokens).logits, ours(tokens))


@torch.no_grad()
@pytest.mark.filterwarnings("ignore::zoo.errors.ConversionWarning")
@pytest.mark.parametrize("prefixes", PREFIXES, ids=["saved", "published"])
@pytest.mark.parametrize("name", TEXT)
def test_only_the_weights_of_the_text_model_are_needed(name: str, prefixes: tuple[str, str], tmp_path: Path) -> None:
    """Whatever code the towers of images and sound need (Gemma 3n's is another package's)."""
    settings = text(name)
    (tmp_path / "config.json").write_text(json.dumps(settings))
    model = hf_model(AutoConfig.from_pretrained(tmp_path))
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    body, head = prefixes
    moved = {
        f"{body}{key.removeprefix('model.')}" if key.startswith("model.") else key.replace("lm_head.", head): value
        for key, value in weights.items()
    }
    save_file({**moved, "vision_tower.patch.weight": torch.ones(2)}, tmp_path / "model.safetensors", {"format": "pt"})
    wrapper = {"model_type": name, "text_config": settings, "tie_word_embeddings": settings["tie_word_embeddings"]}
    (tmp_path / "config.json").write_text(json.dumps(wrapper))
    tokens = tokens_for(model.config, 2)
    assert_near(zoo.from_hf(tmp_path)(tokens), model(tokens).logits)


def test_a_weight_of_the_text_model_without_a_place_is_named(tmp_path: Path) -> None:
    whole("mistral3").save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    extra = {"language_model.model.layers.0.extra.weight": torch.ones(2)}
    save_file({**load_file(path), **extra}, path, {"format": "pt"})
    with pytest.raises(zoo.UnsupportedError, match=r"layers\.0\.extra\.weight: unexpected in"):
        zoo.from_hf(tmp_path)


def test_a_whole_model_in_memory_is_told_what_to_do() -> None:
    with pytest.raises(zoo.UnsupportedError, match=r"contains a gemma3_text: save the model and convert its folder"):
        zoo.from_hf(whole("gemma3"))
