"""Presets at a small size are still models of their kind."""

from __future__ import annotations

import pytest

import zoo
from zoo.conformance.shrink import shrink
from zoo.features.chunks import Chunks

FAMILIES = {
    "bloom": "bloom",
    "command_a": "cohere2",
    "command_r_plus": "cohere",
    "deepseek_v2": "deepseek_v2",
    "deepseek_v3": "deepseek_v3",
    "falcon2_11b": "falcon",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "gpt_neox": "gpt_neox",
    "hunyuan_a13b": "hunyuan_v1_moe",
    "llama3": "llama",
    "mistral_7b": "mistral",
    "mixtral_8x7b": "mixtral",
    "nemotron4": "nemotron",
    "olmo2": "olmo2",
    "opt": "opt",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "smollm3": "smollm3",
}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_small_preset_is_of_its_family(name: str) -> None:
    """Its scores are scaled by the size of its own heads, as transformers scales them."""
    assert zoo.to_hf(zoo.build(shrink(zoo.load(name)))).config.model_type == FAMILIES[name]


@pytest.mark.parametrize("mixer", [{"kind": "cosine"}, {"kind": "mla"}, {"kind": "attention", "head_dim": 96}])
def test_a_scale_that_follows_from_the_heads_still_does(mixer: dict[str, object]) -> None:
    small = shrink(zoo.load("small", **{"d_model": 256, "block.mixer": mixer})).layers[0].mixer
    assert small == small.model_copy(update={"scale": None}).resolve(64)


def test_a_scale_of_its_own_keeps_its_ratio_to_that_of_the_heads() -> None:
    spec = zoo.load("small", **{"d_model": 256, "block.mixer": {"kind": "attention", "heads": 4, "scale": 1.0}})
    assert shrink(spec).block.mixer.scale == pytest.approx(2.0)  # type: ignore[attr-defined]


def test_a_shrunk_model_of_chunks_has_one_layer_in_each_of_its_three_parts() -> None:
    small = shrink(zoo.load("small", n_layers=9, chunks={"ratio": 4, "encoder_layers": 3, "decoder_layers": 2}))
    assert (small.n_layers, small.chunks) == (3, Chunks(ratio=4, encoder_layers=1, decoder_layers=1))


def test_a_shrunk_loop_is_run_twice_between_a_layer_before_and_one_after_it() -> None:
    small = shrink(zoo.load("huginn"))
    assert small.block_of_each == (0, 1, 1, 2)
    assert small.sharing is not None
    assert small.sharing.injection
