"""Families of transformers that cannot be converted, each with the reason: a new one must be converted or explained."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from transformers.models.auto import modeling_auto

from zoo.hf import families

PINNED = "5.23.0"
REASONS = {
    "close to families that are converted; nobody has asked for them yet": """
        beam cohere_compass_text cpmant ctrl dbrx flint gpt_neox_japanese longcat_flash xglm
    """,
    "its config is GPT-2's, which is converted": "gpt-sw3",
    "a norm behind experts and none behind dense layers, which no placement of norms has": "axk1 axk2",
    "blocks that are no variant here: RWKV 4, hashing, ternary weights …": """
        bitnet blt deepseek_v4 doge dots3_note_text hrm_text hy_v4 inkling_text inkling2_text jetmoe lfm3
        qwen4_exp_text reformer rwkv xlnet zamba zamba2 zaya
    """,
    "images or sound, and the text model inside is of no family that is converted": """
        aria_text dots3_note emu3 fuyu gemma4_assistant gemma4_unified_assistant git got_ocr2
        minimax_m3_vl_text mllama moshi moss_transcribe_diarize musicgen musicgen_melody phi4_multimodal
        qwen4_exp trocr whisper
    """,
    "the text model inside is converted: tests/zoo/hf/test_wrappers.py": """
        gemma3 gemma3n gemma4 gemma4_unified llama4 qwen3_5 qwen3_5_moe
    """,
    "encoders, or decoders of translation models, with a causal mask; ModernBERT's blocks are wanting": """
        bart bert-generation big_bird bigbird_pegasus blenderbot blenderbot-small camembert data2vec-text
        electra ernie marian mbart megatron-bert modernbert-decoder mvp pegasus plbart prophetnet rembert
        roberta roberta-prelayernorm roc_bert roformer xlm xlm-roberta xlm-roberta-xl xmod
    """,
}
"""Names of the families by what stands in the way."""


@pytest.mark.skipif(version("transformers") != PINNED, reason=f"the list is that of transformers {PINNED}")
def test_every_causal_family_is_converted_or_has_a_reason() -> None:
    explained = [name for names in REASONS.values() for name in names.split()]
    assert len(explained) == len(set(explained))
    assert set(explained) == set(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) - set(families())


def test_masked_and_sequence_to_sequence_models_are_those_that_the_documentation_names() -> None:
    """BERT, and T5 with its multilingual kind: the zoo is about causal models."""
    masked, pairs = (
        modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    )
    assert set(masked) & set(families()) == {"bert"}
    assert set(pairs) & set(families()) == {"t5", "mt5"}
