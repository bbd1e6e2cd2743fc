"""T5 in each of its versions, with tied heads and heads of their own: configs do not say which."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, MT5Config, T5Config

import zoo
from tests.zoo.hf import kinds, parity
from tests.zoo.hf.families.t5 import drawn

VERSIONS = {"T5": (T5Config, True), "T5 v1.1": (T5Config, False), "mT5": (MT5Config, False)}


def model_of(version: str, seed: int) -> Any:
    """With a head of its own but for the first version, as the published weights have it."""
    config, tied = VERSIONS[version]
    model = parity.hf_model(drawn(random.Random(f"{version} {seed}"), config, tied), seed)
    if not tied:
        weight = torch.randn(model.lm_head.weight.shape, generator=torch.Generator().manual_seed(seed))
        model.lm_head.weight = torch.nn.Parameter(weight)
    return model


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_of_t5_agrees(version: str, seed: int) -> None:
    kinds.check_encoder_decoder(model_of(version, seed))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_saved_t5_is_read_as_it_is_loaded(version: str, tmp_path: Path) -> None:
    """transformers loads a head of its own where the file has one, though the config says that it is tied."""
    model = model_of(version, 7)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    ours, tokens = zoo.from_hf(loaded), parity.tokens_for(model.config, 2)
    assert ours.spec.tie_embeddings == VERSIONS[version][1]
    with torch.no_grad():
        expected = model(input_ids=tokens, decoder_input_ids=tokens).logits
        parity.assert_near(ours(tokens, encoder_tokens=tokens), expected)


def test_an_encoder_decoder_of_ours_gets_a_config_or_a_reason() -> None:
    with pytest.raises(zoo.UnsupportedError, match="no family of transformers expresses this model"):
        zoo.to_hf(zoo.build(zoo.load("small", n_layers=1, encoder={"n_layers": 1})))
