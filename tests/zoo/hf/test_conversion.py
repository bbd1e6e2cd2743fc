"""Refusals, records and messages of conversion, apart from numbers."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BartConfig,
    BartForConditionalGeneration,
    DeepseekV2Config,
    DeepseekV3Config,
    Gemma2Config,
    GemmaConfig,
    GptOssConfig,
    LlamaConfig,
    LlamaForSequenceClassification,
    LlamaModel,
    MixtralConfig,
    Phi3Config,
    Qwen2Config,
    SmolLM3Config,
    Starcoder2Config,
)

import zoo
from tests.zoo.hf.parity import assert_near, draw, eager, hf_model, tokens_for
from zoo.conformance.combinations import random_model
from zoo.hf import _proof, families
from zoo.hf._family import Pair, fused, reshaped, same, stacked, transposed
from zoo.hf._ffn import alternating
from zoo.hf._registry import family_named

TINY = {
    "vocab_size": 40,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "pad_token_id": None,
}
MLA = {"q_lora_rank": None, "kv_lora_rank": 4, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 4}
EXPERTS = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 6, "n_group": 2, "topk_group": 1}
DEEPSEEK = TINY | MLA | EXPERTS

SMALL = {"block.mixer.heads": 4, "block.mixer.kv_heads": 2, "block.ffn.d_ff": 24}


def llama(**settings: Any) -> Any:
    return AutoModelForCausalLM.from_config(LlamaConfig(**TINY | settings))


REFUSED = {
    "hidden_act": LlamaConfig(**TINY, hidden_act="xielu"),
    "quantization_config": LlamaConfig(**TINY, quantization_config={"quant_method": "fp8"}),
    "rope_parameters.partial_rotary_factor": LlamaConfig(
        **TINY, rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    ),
    "sliding_window": Qwen2Config(**TINY, layer_types=["full_attention", "sliding_attention"]),
    "layer_types": SmolLM3Config(**TINY, layer_types=["full_attention", "sliding_attention"]),
    "use_bidirectional_attention": Gemma2Config(**TINY, head_dim=4, use_bidirectional_attention=True),
    "router_jitter_noise": MixtralConfig(**TINY, router_jitter_noise=0.1),
    "head_dim": DeepseekV3Config(**DEEPSEEK, head_dim=4),
    "scoring_func": DeepseekV3Config(**DEEPSEEK, scoring_func="softmax"),
    "moe_layer_freq": DeepseekV3Config(**DEEPSEEK, moe_layer_freq=2),
    "topk_method": DeepseekV2Config(**DEEPSEEK, topk_method="noaux_tc"),
}


@pytest.mark.parametrize("key", REFUSED)
def test_an_option_without_a_counterpart_is_named(key: str) -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(REFUSED[key])
    with pytest.raises(zoo.UnsupportedError) as error:
        zoo.from_hf(model)
    assert error.value.path == key


def test_an_rope_setting_of_another_type_is_named() -> None:
    model = llama()
    model.config.rope_parameters["mscale"] = 3
    with pytest.raises(zoo.UnsupportedError, match=r"^rope_parameters\.mscale: not a parameter of RoPE type 'default'"):
        zoo.from_hf(model)


def test_an_rope_setting_that_nobody_reads_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_proof, "SAID", set())
    model = llama()
    model.config.rope_parameters["never_heard_of"] = 3
    with pytest.warns(zoo.ConversionWarning, match=r"ignored keys that .*: rope_parameters\.never_heard_of"):
        zoo.from_hf(model)


def test_null_and_false_keys_of_other_code_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings are errors in tests. The same key with a value is said, so silence is of the value."""
    monkeypatch.setattr(_proof, "SAID", set())
    zoo.from_hf(llama(use_mrope=False, lm_head_bias=None))
    with pytest.warns(zoo.ConversionWarning, match=r"ignored keys that .*: use_mrope"):
        zoo.from_hf(llama(use_mrope=True, lm_head_bias=None))


PUBLISHED = [
    LlamaConfig(**TINY, is_llama_config=True, rope_interleaved=False, pretraining_tp=4, max_sequence_length=2048),
    Qwen2Config(**TINY, use_mrope=False, max_window_layers=1),
    GemmaConfig(**TINY, head_dim=4, hidden_act="gelu", hidden_activation="gelu_pytorch_tanh"),
    Gemma2Config(**TINY, head_dim=4, hidden_act="gelu_pytorch_tanh", sliding_window_size=4096),
    Phi3Config(**TINY, partial_rotary_factor=0.5, full_attn_mod=1, interpolate_factor=1, lm_head_bias=False),
    Starcoder2Config(**TINY, activation_function="gelu", attention_softmax_in_fp32=True, scale_attn_weights=True),
    GptOssConfig(**TINY, head_dim=4, experts_per_token=4, initial_context_length=4096, swiglu_limit=7.0),
    DeepseekV3Config(**DEEPSEEK, aux_loss_alpha=1e-3, seq_aux=True, ep_size=1, scoring_func="sigmoid"),
    DeepseekV2Config(
        **DEEPSEEK,
        rope_scaling={"type": "yarn", "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707, "beta_fast": 32}
        | {"original_max_position_embeddings": 4096, "beta_slow": 1},
    ),
]
"""With keys of published configs, which transformers may read or not."""


def test_a_model_with_yarn_is_said_to_be_as_long_as_it_was_made(capfd: pytest.CaptureFixture[str]) -> None:
    scaling = {"kind": "yarn", "factor": 4, "original_length": 64}
    small = {"d_model": 16, "n_layers": 1, "vocab_size": 32, "block.mixer.position.scaling": scaling}
    assert zoo.to_hf(zoo.build(zoo.load("small", **small))).config.max_position_embeddings == 256
    assert zoo.hf.native(zoo.load("small", **small, **{"block.ffn": "relu"}))[0] is None
    assert capfd.readouterr().err == "", "transformers warns of lengths that do not fit the factor"


@pytest.mark.parametrize("config", PUBLISHED, ids=lambda config: config.model_type)
def test_published_configs_are_converted(config: Any) -> None:
    model = eager(AutoModelForCausalLM.from_config(config)).eval()
    tokens = tokens_for(config, 2)
    with torch.no_grad():
        assert_near(zoo.from_hf(model)(tokens), model(tokens).logits)


def test_a_family_that_is_not_there_names_its_nearest() -> None:
    with torch.device("meta"):
        model = BartForConditionalGeneration(BartConfig())
    with pytest.raises(zoo.UnsupportedError, match=r"model_type: 'bart' is not supported.*docs/checkpoints_taken"):
        zoo.from_hf(model)
    with pytest.raises(zoo.UnsupportedError, match="nearest: llama, "):
        zoo.to_hf(zoo.from_hf(llama()), family="lama")


NEAREST = {
    "gemma5": "gemma4_text, gemma4_unified_text, gemma3_text",  # a series, nearest version first
    "qwen2_vl_text": "qwen2, qwen2_moe, qwen3",
    "falcon_x1": "falcon, falcon_h1, falcon_mamba",
    "longcat_flash": "deepseek_v3, deepseek_v32, mixtral",  # what its code is built from
    "mistrall": "mistral, ministral, mixtral",
}


@pytest.mark.parametrize("name", NEAREST)
def test_an_unsupported_family_has_its_nearest_in_kind_beside_it_in_one_short_line(name: str) -> None:
    with pytest.raises(zoo.UnsupportedError, match=f"'{name}' is not supported; nearest: {NEAREST[name]} ") as error:
        family_named(name)
    assert len(str(error.value)) < 200


def test_the_documentation_lists_every_family() -> None:
    listed = (
        Path("docs/checkpoints_taken.md").read_text().partition("<!-- families -->")[2].partition("<!-- end -->")[0]
    )
    assert listed.split() == [f"`{name}`" for name in sorted(families())]


@pytest.mark.parametrize("wrong", [LlamaModel, LlamaForSequenceClassification])
def test_only_causal_language_models_are_converted(wrong: type) -> None:
    with pytest.raises(zoo.UnsupportedError, match=f"{wrong.__name__} cannot be converted, only LlamaForCausalLM"):
        zoo.from_hf(wrong(LlamaConfig(**TINY)))


def test_a_model_with_other_weights_than_its_config_says_is_refused() -> None:
    model = llama(attention_bias=True)
    model.config.attention_bias = False
    with pytest.raises(zoo.UnsupportedError, match=r"self_attn\.._proj\.bias: the tensor has no counterpart"):
        zoo.from_hf(model)
    model.config.attention_bias, model.config.mlp_bias = True, True
    with pytest.raises(zoo.UnsupportedError, match=r"mlp\.gate_proj\.bias: missing from the transformers model"):
        zoo.from_hf(model)
    untied = llama(tie_word_embeddings=False)
    untied.config.tie_word_embeddings = True
    with pytest.raises(zoo.UnsupportedError, match=r"lm_head\.weight: the tensor has no counterpart"):
        zoo.from_hf(untied)


def test_models_do_not_share_memory() -> None:
    theirs = hf_model(draw("llama", 0))
    before = {name: value.clone() for name, value in theirs.state_dict().items()}
    ours = zoo.from_hf(theirs)
    again = zoo.to_hf(ours)
    with torch.no_grad():
        for model in (ours, again):
            for parameter in model.parameters():
                parameter.zero_()
    assert all(torch.equal(value, before[name]) for name, value in theirs.state_dict().items())


def test_tied_weights_stay_tied_and_types_stay() -> None:
    model = llama(tie_word_embeddings=True).to(torch.bfloat16)
    ours = zoo.from_hf(model)
    assert ours.head is None
    assert {p.dtype for p in ours.parameters()} == {torch.bfloat16}
    again = zoo.to_hf(ours)
    assert again.lm_head.weight is again.model.embed_tokens.weight
    assert again.dtype == torch.bfloat16


def test_random_numbers_are_left_as_they_were() -> None:
    ours = zoo.from_hf(llama())
    state = torch.random.get_rng_state()
    zoo.to_hf(ours)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_where_a_model_came_from_is_saved_beside_it(tmp_path: Path) -> None:
    config = LlamaConfig(**TINY, bos_token_id=7, hidden_act="swish", max_position_embeddings=99)
    model = AutoModelForCausalLM.from_config(config).eval()
    zoo.save(zoo.from_hf(model), tmp_path)
    again = zoo.to_hf(zoo.open(tmp_path))
    assert (again.config.bos_token_id, again.config.hidden_act) == (7, "swish")
    assert again.config.max_position_embeddings == 99
    tokens = tokens_for(config, 2)
    assert torch.equal(again(tokens).logits, model(tokens).logits)


def test_a_model_trained_here_goes_to_the_plainest_family() -> None:
    spec = zoo.load("llama3", d_model=16, n_layers=2, vocab_size=50, **SMALL)
    ours = random_model(spec.edit({"init": {"output": "zero"}, "z_loss": 1e-4}))
    theirs = zoo.to_hf(ours)
    assert theirs.config.model_type == "llama"
    assert theirs.config.eos_token_id is None
    tokens = torch.arange(20)[None] % 50
    torch.testing.assert_close(theirs(tokens).logits, ours(tokens), rtol=1e-5, atol=1e-5)
    chosen = zoo.to_hf(ours, family="mistral")
    assert chosen.config.model_type == "mistral"
    torch.testing.assert_close(chosen(tokens).logits, ours(tokens), rtol=1e-5, atol=1e-5)


def test_what_no_family_expresses_is_said() -> None:
    edits = {"block.norm_placement": "double", "final_softcap": 30.0}
    spec = zoo.load("small", d_model=16, n_layers=2, embedding_scale=1.0, **edits)
    none = r"no transformers family can express this model; the nearest is \w+, which differs in"
    with pytest.raises(zoo.UnsupportedError, match=none):
        zoo.to_hf(zoo.build(spec))
    named = (
        r"^cannot be expressed as llama, which differs in final_softcap: 30\.0, .*layers\.0\.norm_placement\.kind: doub"
    )
    with pytest.raises(zoo.UnsupportedError, match=named):
        zoo.to_hf(zoo.build(spec), family="llama")


def test_without_transformers_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "transformers":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"pip install transformers peft$"):
        zoo.from_hf(None)


@pytest.mark.parametrize(
    ("pair", "shape"),
    [
        (transposed(same("a", "x")), (3, 4)),
        (transposed(same("a", "x")), (2, 3, 4)),
        (reshaped("a", "x", (6, 2), (3, 4)), (3, 4)),
        (fused("abc", "x", [4, 2, 2]), (8, 3)),
        (fused("abc", "x", [2, 1, 1], groups=3), (12, 5)),
        (fused("ab", "x", [3, 3], dim=1), (2, 6, 5)),
        (alternating("ab", "x"), (2, 3, 8)),
        (alternating("ab", "x"), (2, 8)),
    ],
)
def test_every_change_of_layout_is_undone(pair: Pair, shape: tuple[int, ...]) -> None:
    theirs = torch.randn(shape)
    assert torch.equal(pair.write(pair.read([theirs]))[0], theirs)


def test_fused_heads_are_taken_apart_by_head() -> None:
    """Rows named by head and part: GPT-NeoX puts each head's q, k and v together, Falcon each group's."""
    rows = [f"{part}{group}" for group in range(3) for part in ("q", "Q", "k", "v")]
    numbers = torch.arange(12.0)[:, None]
    q, k, v = fused("qkv", "x", [2, 1, 1], groups=3).read([numbers])
    assert [rows[int(i)] for i in q] == ["q0", "Q0", "q1", "Q1", "q2", "Q2"]
    assert [rows[int(i)] for i in k] == ["k0", "k1", "k2"]
    assert [rows[int(i)] for i in v] == ["v0", "v1", "v2"]


def test_experts_of_their_own_are_stacked() -> None:
    theirs = [torch.randn(2, 3) for _ in range(4)]
    pair = stacked("a", [f"x{i}" for i in range(4)])
    (ours,) = pair.read(theirs)
    assert torch.equal(ours[2], theirs[2])
    assert all(torch.equal(a, b) for a, b in zip(pair.write([ours]), theirs, strict=True))
