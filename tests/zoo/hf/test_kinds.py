"""T5 in each of its versions, with tied heads and heads of their own: configs do not say which."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, BertConfig, MT5Config, T5Config

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


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 10))])
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
    with pytest.raises(zoo.UnsupportedError, match="no transformers family can express this model"):
        zoo.to_hf(zoo.build(zoo.load("small", n_layers=1, encoder={"n_layers": 1})))


def test_keys_of_published_configs_say_nothing_more() -> None:
    """Those of bert-base-multilingual-cased and of flan-t5-small, as far as they are not of the config class."""
    bert = BertConfig(
        vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=11,
        pad_token_id=None, position_embedding_type="absolute", directionality="bidi", pooler_fc_size=768,
        pooler_num_attention_heads=12, pooler_num_fc_layers=3, pooler_size_per_head=128,
        pooler_type="first_token_transform",
    )  # fmt: skip
    kinds.check_encoder(parity.hf_model(bert))
    flan = T5Config(
        vocab_size=50, d_model=8, d_kv=4, d_ff=11, num_layers=1, num_heads=2, feed_forward_proj="gated-gelu",
        tie_word_embeddings=False, pad_token_id=None, n_positions=512, output_past=True, decoder_start_token_id=0,
    )  # fmt: skip
    kinds.check_encoder_decoder(parity.hf_model(flan))
    bert.position_embedding_type = "relative_key"
    with pytest.raises(zoo.UnsupportedError, match="position_embedding_type: 'relative_key' cannot be converted"):
        zoo.from_hf(parity.hf_model(bert))


@pytest.mark.parametrize("tied", [True, False])
def test_a_head_of_its_own_may_be_scaled(tied: bool) -> None:
    """T5's first version with a head of its own, and v1.1 without one: what the config decides is the scale alone."""
    model = parity.hf_model(drawn(random.Random(f"odd {tied}"), T5Config, tied), 3)
    if tied:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach() * 1.5)
    kinds.check_encoder_decoder(model)
