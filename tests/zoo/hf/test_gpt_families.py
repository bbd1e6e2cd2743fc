"""Properties of the families of the GPT kind that random configs do not show."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, FalconConfig, GPTJConfig, OPTConfig
from transformers import models as hf

import zoo
from tests.zoo.hf.parity import assert_near, hf_model, tokens_for
from zoo.hf import families
from zoo.hf._config import Config
from zoo.hf._proof import read_by

UNSUPPORTED = {
    "add_cross_attention": hf.gpt2.GPT2Config(add_cross_attention=True),
    "activation_function": hf.gpt2.GPT2Config(activation_function="sqrtsoftplus"),
    "afn": hf.openai.OpenAIGPTConfig(afn="gelu_new"),
    "rotary_dim": GPTJConfig(n_embd=24, n_head=4, rotary_dim=8),
    "hidden_act": hf.gpt_neox.GPTNeoXConfig(hidden_act="prelu"),
    "layerdrop": OPTConfig(layerdrop=0.1),
    "slow_but_exact": hf.bloom.BloomConfig(slow_but_exact=True, pretraining_tp=2),
    "parallel_attn": FalconConfig(new_decoder_architecture=True, parallel_attn=False),
    "num_ln_in_parallel_attn": FalconConfig(num_ln_in_parallel_attn=2),
    "num_kv_heads": FalconConfig(multi_query=False, num_kv_heads=1),
    "attention_dropout": FalconConfig(attention_dropout=0.1),
    "sliding_window": hf.cohere2.Cohere2Config(sliding_window=None),
    "layer_types": hf.cohere2.Cohere2Config(num_hidden_layers=1, layer_types=["chunked_attention"]),
    "hidden_dropout": hf.stablelm.StableLmConfig(hidden_dropout=0.1),
}


def convert(config: Any) -> zoo.ModelSpec:
    """The spec alone: transformers cannot build some of these."""
    reader = Config(config)
    spec = zoo.parse(families()[config.model_type].spec(reader))
    reader.finish(read_by(AutoModelForCausalLM._model_mapping[type(config)], type(config)))
    return spec


@pytest.mark.parametrize("option", UNSUPPORTED)
def test_an_option_that_cannot_be_converted_is_named(option: str) -> None:
    with pytest.raises(zoo.UnsupportedError) as caught:
        convert(UNSUPPORTED[option])
    assert caught.value.path == option


PUBLISHED = {
    "gpt2": {
        "n_ctx": 1024,
        "n_special": 0,
        "predict_special_tokens": True,
        "output_past": True,
        "_num_labels": 1,
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    },
    "openai-gpt": {"n_ctx": 512, "n_special": 0, "predict_special_tokens": True},
    "gptj": {
        "rotary": True,
        "scale_attn_weights": True,
        "summary_type": "cls_index",
        "tokenizer_class": "GPT2Tokenizer",
    },
    "gpt_neox": {"attention_probs_dropout_prob": 0, "hidden_dropout_prob": 0, "hidden_act": "gelu_fast"},
    "opt": {"activation_dropout": 0.0, "prefix": "</s>", "learned_embeddings": True, "scale_embeddings": False},
    "bloom": {
        "masked_softmax_fusion": True,
        "n_inner": None,
        "offset_alibi": 100,
        "seq_length": 2048,
        "unk_token_id": 0,
    },
    "falcon": {"apply_residual_connection_post_layernorm": False, "n_embed": 142, "ff_factor": 4},
    "cohere": {"model_max_length": 131_072},
    "cohere2": {
        "cache_implementation": "hybrid",
        "position_embedding_type": "rope_gptj",
        "use_parallel_block": True,
        "_sliding_window_pattern": 4,
    },
}
"""Keys of published configs that transformers does not read."""


@pytest.mark.parametrize("model_type", PUBLISHED)
def test_keys_of_published_configs_that_say_nothing_are_no_obstacle(model_type: str) -> None:
    from transformers import AutoConfig  # noqa: PLC0415

    convert(AutoConfig.for_model(model_type, **PUBLISHED[model_type]))


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("heads", [3, 4, 12])
@torch.no_grad()
def test_falcons_alibi_is_that_of_the_code_that_computes_it(implementation: str, heads: int) -> None:
    """transformers' eager attention adds the biases twice. At 300 tokens their rounding to bfloat16 shows too."""
    config = FalconConfig(
        vocab_size=50, hidden_size=4 * heads, num_hidden_layers=2, num_attention_heads=heads, alibi=True
    )
    model = hf_model(config)
    model.config._attn_implementation = implementation
    tokens = tokens_for(config, 2, 300)
    expected = model(tokens).logits
    ours = zoo.from_hf(model)
    assert_near(ours(tokens), expected)
    again = zoo.to_hf(ours)
    assert again.config._attn_implementation == implementation
    assert torch.equal(again(tokens).logits, expected)


@torch.no_grad()
def test_rows_of_positions_before_the_first_token_are_kept() -> None:
    """OPT's table has two that no token reads."""
    model = hf_model(OPTConfig(vocab_size=50, hidden_size=8, ffn_dim=9, num_hidden_layers=1, num_attention_heads=2))
    table = model.model.decoder.embed_positions.weight
    assert torch.equal(zoo.to_hf(zoo.from_hf(model)).model.decoder.embed_positions.weight[:2], table[:2])


@torch.no_grad()
def test_a_model_of_the_zoo_finds_its_family() -> None:
    """From a spec that never was a config of transformers."""
    spec = zoo.parse(
        {
            "vocab_size": 61,
            "d_model": 24,
            "n_layers": 2,
            "tie_embeddings": False,
            "block": {
                "norm": "layernorm",
                "topology": "parallel_two_norms",
                "mixer": {"kind": "attention", "heads": 4, "position": {"kind": "rope", "fraction": 0.5}, "bias": True},
                "ffn": {"kind": "gelu", "d_ff": 40, "bias": True},
            },
        }
    )
    model = zoo.build(spec)
    again = zoo.to_hf(model)
    assert again.config.model_type == "gpt_neox"
    tokens = tokens_for(again.config, 2)
    assert_near(again(tokens).logits + 1, model(tokens) + 1)
    assert isinstance(again, AutoModelForCausalLM._model_mapping[type(again.config)])
