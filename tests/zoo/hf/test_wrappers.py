"""Language models inside models that read images or sound: converted if the whole has their logits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import zoo
from tests.zoo.hf import wholes
from tests.zoo.hf.parity import LENGTH, assert_near, eager
from zoo.hf import _wrappers, spec_of

QUICK = ("gemma3", "idefics3", "mistral3", "qwen3_vl", "voxtral")
"""Tried by default, and in the slow suite all: bodies at several names, a complete model inside, no
`tie_word_embeddings` at the top, RoPE with three axes."""
SEEDS = (0, 1)
"""Seeds of random models; see `wholes.config`."""
pytestmark = pytest.mark.filterwarnings("ignore::zoo.errors.ConversionWarning")


@pytest.fixture(autouse=True, scope="module")
def _towers() -> None:
    wholes.without_timm()


def text(whole: Any) -> torch.Tensor:
    """Random tokens that stand for no image and no sound."""
    special = [value for key, value in vars(whole.config).items() if "_token_i" in key and isinstance(value, int)]
    plain = [token for token in range(whole.config.text_config.vocab_size) if token not in special]
    generator = torch.Generator().manual_seed(1)
    return torch.tensor(plain)[torch.randint(len(plain), (2, LENGTH), generator=generator)]


@torch.no_grad()
def converts(name: str, seed: int, folder: Path) -> bool:
    """Whether a random whole model is converted. If it is, the logits must be those of the whole; if not, the refusal
    must be one line."""
    try:
        whole = wholes.model(wholes.config(name, wholes.wrappers()[name], seed))
    except StopIteration:
        return False  # transformers has no whole model that writes text
    wholes.save(whole, folder)
    try:
        ours = zoo.from_hf(folder)
    except zoo.UnsupportedError as error:
        assert "\n" not in str(error) and str(folder) in str(error), error
        return False
    tokens = text(whole)
    assert_near(ours(tokens), whole(input_ids=tokens).logits)
    assert spec_of(folder) == ours.spec
    assert_near(eager(zoo.to_hf(ours))(tokens).logits, ours(tokens))
    return True


@pytest.mark.parametrize("name", QUICK)
def test_the_language_model_inside_has_the_logits_of_the_whole(name: str, tmp_path: Path) -> None:
    assert sum(converts(name, seed, tmp_path / str(seed)) for seed in SEEDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(_wrappers.PROVEN))
def test_every_whole_model_in_the_table_is_proven(name: str, tmp_path: Path) -> None:
    assert sum(converts(name, seed, tmp_path / str(seed)) for seed in SEEDS)


@pytest.mark.slow
def test_the_table_has_every_whole_model_of_transformers_that_can_be_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = set(wholes.wrappers()) - _wrappers.PROVEN
    assert {"aya_vision", "cohere2_vision", "blip-2", "paligemma"} <= others
    assert set(wholes.wrappers()) >= _wrappers.PROVEN
    monkeypatch.setattr(_wrappers, "PROVEN", frozenset(wholes.wrappers()))
    assert not [name for name in sorted(others) if any(converts(name, s, tmp_path / f"{name}{s}") for s in SEEDS)]


def test_a_whole_model_without_proof_is_refused_by_name(tmp_path: Path) -> None:
    wholes.save(wholes.model(wholes.config("cohere2_vision", "cohere2")), tmp_path)
    for convert in (zoo.from_hf, spec_of):
        with pytest.raises(zoo.UnsupportedError, match="'cohere2_vision' contains a cohere2, but is not known"):
            convert(tmp_path)


def test_a_head_that_the_whole_model_computes_otherwise_is_noticed() -> None:
    """LLaVA-NeXT around Granite: transformers' whole model does not divide logits by `logits_scaling`."""
    config = wholes.config("llava_next", "granite")
    config.text_config.logits_scaling = 3.0
    with pytest.raises(zoo.UnsupportedError, match="its logits on text differ from those of its granite"):
        zoo.from_hf(wholes.model(config))


def test_a_whole_model_in_memory_is_converted() -> None:
    whole = wholes.model(wholes.config("llava", "mistral"))
    tokens = text(whole)
    with torch.no_grad():
        assert_near(zoo.from_hf(whole)(tokens), whole(input_ids=tokens).logits)


def test_a_family_inside_that_is_not_converted_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "aria"}))
    with pytest.raises(zoo.UnsupportedError, match=r"model_type: 'aria_text' is not supported; nearest: llama"):
        zoo.from_hf(tmp_path)


def changed(folder: Path, name: str = "mistral3", **extra: torch.Tensor) -> dict[str, torch.Tensor]:
    """Save a whole model with these weights added, and return all."""
    wholes.save(wholes.model(wholes.config(name, wholes.wrappers()[name])), folder)
    weights = load_file(folder / "model.safetensors") | extra
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return weights


def test_weights_of_other_parts_may_be_missing_or_unknown(tmp_path: Path) -> None:
    weights = changed(tmp_path, **{"vision_tower.extra.weight": torch.ones(2)})
    assert any("vision_tower" in name for name in weights)
    kept = {name: value for name, value in weights.items() if "vision_tower" not in name or "extra" in name}
    save_file(kept, tmp_path / "model.safetensors", {"format": "pt"})
    zoo.from_hf(tmp_path)


def test_a_weight_of_the_language_model_without_a_place_is_named(tmp_path: Path) -> None:
    changed(tmp_path, **{"language_model.model.layers.0.extra.weight": torch.ones(2)})
    with pytest.raises(zoo.UnsupportedError, match=r"layers\.0\.extra\.weight: unexpected in"):
        zoo.from_hf(tmp_path)


def test_a_weight_of_the_language_model_that_is_missing_is_named(tmp_path: Path) -> None:
    weights = changed(tmp_path)
    name = next(name for name in weights if name.endswith("layers.0.mlp.up_proj.weight"))
    del weights[name]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(zoo.UnsupportedError, match=r"layers\.0\.mlp\.up_proj\.weight: missing from"):
        zoo.from_hf(tmp_path)
