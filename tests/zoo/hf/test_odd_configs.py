"""Configs at the edge of what transformers builds: the same logits, or an error that names the option."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import zoo
from tests.zoo.hf.parity import LENGTH, assert_near, check_logits, check_round_trip, eager, hf_model, tokens_for

SIZES = {
    "vocab_size": 41,
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "num_key_value_heads": 2}
LATENT = {"q_lora_rank": None, "kv_lora_rank": 6, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 5}
DEEPSEEK = {
    **LATENT,
    **{"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 6, "n_group": 2, "topk_group": 1},
    **{"num_key_value_heads": 4, "first_k_dense_replace": 1},
}

EMPTY = pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")


def config_of(family: str, **settings: Any) -> Any:
    return AutoConfig.for_model(family, **SIZES | settings)


def check(config: Any) -> None:
    model = hf_model(config)
    ours = zoo.from_hf(model)
    check_logits(model, ours)
    check_round_trip(model, ours)


@pytest.mark.parametrize("family", ["qwen2", "olmo", "olmo2", "cohere", "starcoder2", "smollm3", "granite"])
def test_heads_need_not_divide_the_width(family: str) -> None:
    """transformers rounds the features of a head down."""
    check(config_of(family, hidden_size=27, num_key_value_heads=2))


@pytest.mark.parametrize(("family", "weight"), [("mixtral", 0.02), ("gpt_oss", 0.9)])
def test_the_weight_of_a_balance_loss_that_is_off_is_no_obstacle(family: str, weight: float) -> None:
    """Published configs have such weights: Mixtral 8x7B has 0.02, gpt-oss-20b 0.9, and neither gives the router's
    logits."""
    model = hf_model(config_of(family, **EXPERTS, head_dim=6, sliding_window=4, router_aux_loss_coef=weight))
    ours = zoo.from_hf(model)
    assert {layer.ffn.balance_loss for layer in ours.spec.layers} == {0.0}  # type: ignore[attr-defined]
    assert zoo.to_hf(ours).config.router_aux_loss_coef == weight


def test_the_weight_of_a_balance_loss_is_none_beside_deltanet_either() -> None:
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 6}
    sizes = {**experts, "shared_expert_intermediate_size": 6, "num_key_value_heads": 2, "head_dim": 8}
    linear = {"linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 4}
    layers = {"linear_value_head_dim": 4, "layer_types": ["full_attention", "linear_attention"]}
    config = config_of("qwen3_next", **sizes, **linear, **layers, router_aux_loss_coef=0.1)
    check(config)


DELTA = {
    "linear_num_key_heads": 1, "linear_num_value_heads": 3, "linear_key_head_dim": 5, "linear_value_head_dim": 3,
    "layer_types": ["full_attention", "linear_attention", "linear_attention"], "head_dim": 10,
    "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 7, "shared_expert_intermediate_size": 5,
}  # fmt: skip
"""Odd sizes of a model with attention, DeltaNet, experts, and a last layer without these."""
UNUSUAL = [
    "gelu_10", "gelu_accurate", "hardswish", "laplace", "leaky_relu", "linear", "mish", "relu2", "relu6", "sigmoid",
    "tanh",
]  # fmt: skip


@pytest.mark.parametrize("act", UNUSUAL)
def test_activations_that_no_published_model_has(act: str) -> None:
    """The activation is that of dense layers, of experts, and behind DeltaNet's convolution."""
    sizes = {**DELTA, "num_hidden_layers": 3, "mlp_only_layers": [2], "num_key_value_heads": 2}
    check(config_of("qwen3_next", **sizes, hidden_act=act))


@pytest.mark.parametrize("act", UNUSUAL)
def test_activations_that_no_published_model_has_without_a_gate(act: str) -> None:
    check(config_of("arcee", num_key_value_heads=2, hidden_act=act))


@pytest.mark.parametrize("act", ["prelu", "sqrtsoftplus", "xielu"])
def test_an_activation_that_learns_or_has_no_gradient_is_named(act: str) -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config_of("qwen3", num_key_value_heads=2, hidden_act=act))
    with pytest.raises(zoo.UnsupportedError, match=rf"^hidden_act: '{act}' cannot be converted, only silu, "):
        zoo.from_hf(model)


@EMPTY
@pytest.mark.parametrize("family", ["deepseek_v2", "deepseek_v3"])
def test_no_shared_expert(family: str) -> None:
    """transformers keeps matrices of no features in its place."""
    check(config_of(family, **DEEPSEEK, n_shared_experts=0))


@EMPTY
def test_the_bias_of_no_shared_expert_is_named() -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            config_of("deepseek_v2", **DEEPSEEK, n_shared_experts=0, mlp_bias=True)
        )
    with pytest.raises(zoo.UnsupportedError, match=r"^n_shared_experts:"):
        zoo.from_hf(model)


def test_dropout_of_latent_attention_is_kept() -> None:
    config = config_of("deepseek_v3", **DEEPSEEK, attention_dropout=0.5)
    check(config)
    ours = zoo.from_hf(hf_model(config))
    tokens = tokens_for(config, 2)
    ours.train()
    assert not torch.equal(ours(tokens), ours(tokens))


@pytest.mark.parametrize("odd", ["kv_lora_rank", "qk_nope_head_dim"])
def test_latents_of_odd_sizes_find_a_family_that_runs(odd: str) -> None:
    """Without experts V2 could say it too, but its complex numbers cannot be laid over an odd number of features."""
    config = config_of("deepseek_v3", **DEEPSEEK | {odd: 5, "first_k_dense_replace": 2})
    check(config)


def rope(kind: str, **settings: Any) -> dict[str, Any]:
    own = {} if kind == "default" else {"factor": 4.0}
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 1e4, **own, **settings}}


def named(option: str) -> str:
    return f"rope_parameters.{option}"


LONG = {"short_factor": [1.0, 2.0], "long_factor": [1.0, 3.0], "original_max_position_embeddings": 8}
TURNED = {
    "one feature under YaRN": ("gpt_neox", rope("yarn"), named("partial_rotary_factor")),
    "three features under YaRN": ("glm", {**rope("yarn"), "head_dim": 6}, named("partial_rotary_factor")),
    "one feature of StableLM": ("stablelm", rope("linear"), named("partial_rotary_factor")),
    "a part of StableLM's pairs": ("stablelm", rope("proportional"), named("partial_rotary_factor")),
    "no feature": ("nemotron", rope("default", partial_rotary_factor=0.1), named("partial_rotary_factor")),
    "one pair under dynamic": ("glm4", {**rope("dynamic"), "head_dim": 2}, named("partial_rotary_factor")),
    "factors for other pairs": ("glm4", {**rope("longrope", **LONG), "head_dim": 4}, named("short_factor")),
}
"""Settings under which transformers computes something, but not RoPE."""


@pytest.mark.parametrize("case", TURNED)
def test_a_number_of_features_that_cannot_be_turned_is_named(case: str) -> None:
    family, settings, option = TURNED[case]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config_of(family, num_key_value_heads=4, **settings))
    with pytest.raises(zoo.UnsupportedError) as error:
        zoo.from_hf(model)
    assert error.value.path == option


@torch.no_grad()
def test_phimoe_takes_the_long_factors_beyond_its_original_length() -> None:
    """transformers 5 takes the short ones at any length, so its reference there has the long ones in their place."""
    short, long, length = [1.0, 1.5, 2.0], [1.2, 4.0, 9.0], LENGTH - 2
    same = {"original_max_position_embeddings": length, "short_mscale": 1.1, "long_mscale": 1.1, "long_factor": long}
    positions = [rope("longrope", short_factor=factors, **same) for factors in (short, long)]
    models = [hf_model(config_of("phimoe", num_key_value_heads=2, **position)) for position in positions]
    ours, tokens = zoo.from_hf(models[0]), tokens_for(models[0].config, 2)
    assert_near(ours(tokens[:, :length]), models[0](tokens[:, :length]).logits)
    assert_near(ours(tokens), models[1](tokens).logits)


def test_scaled_rope_that_no_family_takes_is_refused_by_all() -> None:
    """RecurrentGemma's config class, which is among those that are tried, has no length."""
    scaling = {"kind": "llama3", "factor": 4.0, "original_length": 8}
    position = {"kind": "rope", "scaling": scaling}
    edits = {"n_layers": 2, "block.mixer.position": position, "block.mixer.window": 4, "final_softcap": 3.0}
    with pytest.raises(zoo.UnsupportedError, match="no transformers family can express this model"):
        zoo.to_hf(zoo.build(zoo.load("small", **edits, unet_skips=True)))


@torch.no_grad()
def test_scores_may_be_scaled_up() -> None:
    """Families that have another name for the scale are asked about it too, on the way to the one that fits."""
    model = hf_model(config_of("granite", num_key_value_heads=2, attention_multiplier=3.3, residual_multiplier=0.5))
    ours = zoo.from_hf(model)
    ours.origin = None
    tokens = tokens_for(model.config, 2)
    assert_near(eager(zoo.to_hf(ours))(tokens).logits, model(tokens).logits)


@torch.no_grad()
def test_a_model_in_bfloat16_runs_on_both_sides() -> None:
    """GPT's mask is a buffer that is not saved: it must be of the weights' type too."""
    sizes = {"vocab_size": 41, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 32}
    model = hf_model(AutoConfig.for_model("openai-gpt", **sizes)).bfloat16()
    again = zoo.to_hf(zoo.from_hf(model))
    tokens = tokens_for(model.config, 2)
    assert torch.equal(again(tokens).logits, model(tokens).logits)


def test_keys_of_a_published_mamba2_say_nothing_more() -> None:
    """Those of Mamba-Codestral-7B: transformers normalises behind the gate, whatever `norm_before_gate` says."""
    sizes = {"num_heads": 8, "head_dim": 6, "n_groups": 4, "state_size": 5, "time_step_rank": 2}
    unread = {"intermediate_size": 48, "norm_before_gate": True, "rms_norm": True}
    steps = {"time_step_init_scheme": "random", "time_step_scale": 1.0}
    settings = {key: value for key, value in SIZES.items() if key not in ("intermediate_size", "num_attention_heads")}
    check(AutoConfig.for_model("mamba2", **settings | sizes | unread | steps))


@pytest.mark.parametrize(
    ("family", "settings", "reason"),
    [
        ("bert", {"hidden_dropout_prob": 1.0}, r"block\.dropout: must be less than 1"),
        ("bert", {"layer_norm_eps": 0.0}, r"block\.norm\.eps: must be greater than 0"),
        ("t5", {"relative_attention_max_distance": 16}, r"max_distance: must be more than buckets // 2 = 16"),
    ],
    ids=str,
)
def test_what_no_spec_can_say_is_refused_as_unsupported(family: str, settings: dict[str, Any], reason: str) -> None:
    tokens = {key: SIZES[key] for key in ("pad_token_id", "bos_token_id", "eos_token_id")}
    own = {"d_model": 8, "num_heads": 2, "num_layers": 1} if family == "t5" else SIZES
    model = hf_model(AutoConfig.for_model(family, **own | tokens | settings))
    with pytest.raises(zoo.UnsupportedError, match=reason):
        zoo.from_hf(model)
