"""The adapter against lm-eval's own adapter of transformers, on the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lm_eval.api.instance import Instance
from tokenizers import Tokenizer

from evals.lm import ZooLM
from tests.evals.bytelevel import EOS
from zoo.model import Decoder

transformers = pytest.importorskip("transformers")

WINDOW = 32
TEXTS = [("The cat", " sat"), ("", "nothing before"), ("x" * 80, " a long context"), ("naïve ", "spaces")]


def llama_with_weights_of(model: Decoder) -> Any:
    """transformers' Llama, which has the same architecture as the preset."""
    spec = model.spec
    width = model.blocks[0].ffn.down.weight.shape[1]
    config = transformers.LlamaConfig(
        vocab_size=spec.vocab_size,
        hidden_size=spec.d_model,
        intermediate_size=width,
        num_hidden_layers=spec.n_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=EOS,
    )
    llama = transformers.LlamaForCausalLM(config).eval()
    weights = {"model.embed_tokens.weight": model.embedding.weight, "model.norm.weight": model.norm.gain}
    weights["lm_head.weight"] = model.embedding.weight
    for i, block in enumerate(model.blocks):
        here = f"model.layers.{i}."
        for ours in ("q", "k", "v", "o"):
            weights[f"{here}self_attn.{ours}_proj.weight"] = getattr(block.mixer, ours).weight
        for ours in ("gate", "up", "down"):
            weights[f"{here}mlp.{ours}_proj.weight"] = getattr(block.ffn, ours).weight
        weights[f"{here}input_layernorm.weight"] = block.mixer_residual.norm_in.gain
        weights[f"{here}post_attention_layernorm.weight"] = block.ffn_residual.norm_in.gain
    llama.load_state_dict(weights)
    return llama


def test_scores_are_those_of_lm_evals_hf_adapter(model: Decoder, byte_tokenizer: Tokenizer) -> None:
    huggingface = pytest.importorskip("lm_eval.models.huggingface")
    llama = llama_with_weights_of(model)
    sample = torch.randint(256, (2, 20), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(llama(sample).logits, model(sample), atol=1e-5, rtol=1e-5)

    byte_tokenizer.add_special_tokens(["<eos>"])
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=byte_tokenizer, eos_token="<eos>", pad_token="<eos>", clean_up_tokenization_spaces=False
    )
    assert wrapped.eos_token_id == EOS
    theirs = huggingface.HFLM(pretrained=llama, tokenizer=wrapped, batch_size=2, max_length=WINDOW, device="cpu")
    ours = ZooLM(model, byte_tokenizer, eos=EOS, context=WINDOW, batch=3)

    pairs = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(TEXTS)]
    for found, expected in zip(ours.loglikelihood(pairs), theirs.loglikelihood(pairs), strict=True):
        assert found[0] == pytest.approx(expected[0], abs=1e-4)
        assert found[1] == expected[1]
    texts = [Instance("loglikelihood_rolling", {}, (c * 2 + t,), i) for i, (c, t) in enumerate(TEXTS)]
    assert ours.loglikelihood_rolling(texts) == pytest.approx(theirs.loglikelihood_rolling(texts), abs=1e-4)
    settings = {"until": ["zzz"], "max_gen_toks": 8, "do_sample": False}
    prompts = [Instance("generate_until", {}, (c, dict(settings)), i) for i, (c, _) in enumerate(TEXTS) if c]
    assert ours.generate_until(prompts) == theirs.generate_until(prompts)
