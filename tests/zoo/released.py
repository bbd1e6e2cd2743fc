"""config.json of released models, in transformers' words: what it says where it is not the family's default.

A second writing of what the presets say, in another vocabulary; `test_presets.py` compares the two.
"""

from typing import Any

Config = tuple[str, dict[str, Any]]


def rope(theta: float, **scaling: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta} | scaling}


def yarn(theta: float, factor: float, **more: Any) -> dict[str, Any]:
    known = {"original_max_position_embeddings": 4096, "beta_fast": 32.0, "beta_slow": 1.0}
    return rope(theta, rope_type="yarn", factor=factor, **known, **more)


def sizes(width: int, layers: int, heads: int, kv_heads: int, d_ff: int, vocab: int) -> dict[str, Any]:
    names = "hidden_size num_hidden_layers num_attention_heads num_key_value_heads intermediate_size vocab_size"
    return dict(zip(names.split(), (width, layers, heads, kv_heads, d_ff, vocab), strict=True))


RELEASED: dict[str, Config] = {
    "gpt": ("openai-gpt", {}),
    "gpt2": ("gpt2", {"n_embd": 1600, "n_layer": 48, "n_head": 25, "embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0}),
    "gptj": ("gptj", {}),
    "gpt_neox": ("gpt_neox", {"hidden_act": "gelu_fast"}),
    "bloom": ("bloom", {"hidden_size": 14336, "n_layer": 70, "n_head": 112, "hidden_dropout": 0.0}),
    "opt": (
        "opt",
        {"hidden_size": 12288, "word_embed_proj_dim": 12288, "num_hidden_layers": 96, "num_attention_heads": 96}
        | {"ffn_dim": 49152},
    ),
    "falcon_7b": ("falcon", {}),
    "falcon_40b": (
        "falcon",
        {"hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128, "num_kv_heads": 8}
        | {"new_decoder_architecture": True},
    ),
    "falcon2_11b": (
        "falcon",
        {"hidden_size": 4096, "num_hidden_layers": 60, "num_attention_heads": 32, "num_kv_heads": 8}
        | {"new_decoder_architecture": True, "num_ln_in_parallel_attn": 1, "tie_word_embeddings": False}
        | rope(5000042.0),
    ),
    "llama": ("llama", {}),
    "llama2": ("llama", sizes(8192, 80, 64, 8, 28672, 32000) | {"rms_norm_eps": 1e-5}),
    "llama3": ("llama", sizes(4096, 32, 32, 8, 14336, 128256) | {"rms_norm_eps": 1e-5} | rope(500000.0)),
    "deepseek_llm": ("llama", sizes(8192, 95, 64, 8, 22016, 102400)),
    "yi": ("llama", sizes(7168, 60, 56, 8, 20480, 64000) | {"rms_norm_eps": 1e-5} | rope(5000000.0)),
    "smollm2": (
        "llama",
        sizes(2048, 24, 32, 32, 8192, 49152) | {"rms_norm_eps": 1e-5, "tie_word_embeddings": True} | rope(130000.0),
    ),
    "smollm3": ("smollm3", rope(5000000.0)),
    "mistral_7b": ("mistral", {"rms_norm_eps": 1e-5}),
    "mixtral_8x7b": ("mixtral", {}),
    "qwen2": ("qwen2", sizes(3584, 28, 28, 4, 18944, 152064) | rope(1000000.0)),
    "qwen2_5": ("qwen2", sizes(8192, 80, 64, 8, 29568, 152064) | {"rms_norm_eps": 1e-5} | rope(1000000.0)),
    "qwen3": ("qwen3", sizes(4096, 36, 32, 8, 12288, 151936) | rope(1000000.0)),
    "phi4": ("phi3", sizes(5120, 40, 40, 10, 17920, 100352) | rope(250000.0)),
    "olmo": ("olmo", {}),
    "olmo2": ("olmo2", {"vocab_size": 100352, "rms_norm_eps": 1e-6} | rope(500000.0)),
    "gemma2": ("gemma2", sizes(3584, 42, 16, 8, 14336, 256000)),
    "gemma3": (
        "gemma3_text",
        sizes(5376, 62, 32, 16, 21504, 262208)
        | {"head_dim": 128, "query_pre_attn_scalar": 168, "sliding_window": 1024}
        | {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            }
        },
    ),
    "command_r_plus": (
        "cohere",
        sizes(12288, 64, 96, 8, 33792, 256000) | {"logit_scale": 0.8333333333333334, "use_qk_norm": True} | rope(75e6),
    ),
    "command_a": ("cohere2", sizes(12288, 64, 96, 8, 36864, 256000) | {"logit_scale": 0.25} | rope(50000.0)),
    "nemotron4": ("nemotron", {"num_key_value_heads": 8}),
    "deepseek_v2": (
        "deepseek_v2",
        sizes(5120, 60, 128, 128, 12288, 102400)
        | {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
        | {"n_routed_experts": 160, "n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1536}
        | {"topk_method": "group_limited_greedy", "n_group": 8, "topk_group": 3, "routed_scaling_factor": 16.0}
        | {"first_k_dense_replace": 1, "norm_topk_prob": False, "max_position_embeddings": 163840}
        | yarn(10000.0, 40.0, mscale=0.707, mscale_all_dim=0.707),
    ),
    "deepseek_v3": ("deepseek_v3", yarn(10000.0, 40.0, mscale=1.0, mscale_all_dim=1.0)),
    "gpt_oss": ("gpt_oss", {}),
}

UNRELEASED = {"anthropic_lm", "chinchilla", "gopher", "gpt3", "lamda", "palm", "small"}
"""Presets without released weights."""
OWN_CODE = {"phi3_small", "qwen_14b", "reka_flash"}
"""Presets whose released weights came with code of their own, or are a later model's (Reka Flash 3)."""

STORED_PARAMETERS = {
    "gpt": 116_534_784,
    "gpt2": 1_557_611_200,
    "gptj": 6_050_882_784,
    "gpt_neox": 20_554_567_680,
    "bloom": 176_247_271_424,
    "falcon_7b": 6_921_720_704,
    "llama": 6_738_415_616,
    "llama2": 68_976_648_192,
    "llama3": 8_030_261_248,
    "mistral_7b": 7_241_732_096,
    "mixtral_8x7b": 46_702_792_704,
    "olmo": 6_888_095_744,
    "olmo2": 7_298_617_344,
    "yi": 34_388_917_248,
    "qwen_14b": 14_167_290_880,
    "qwen2": 7_615_616_512,
    "qwen2_5": 72_706_203_648,
    "qwen3": 8_190_735_360,
    "gemma2": 9_241_705_984,
    "phi3_small": 7_392_272_384,
    "phi4": 14_659_507_200,
    "smollm2": 1_711_376_384,
    "smollm3": 3_075_098_624,
    "command_r_plus": 103_810_674_688,
    "deepseek_v2": 235_741_434_880,
    "gpt_oss": 116_829_156_672,
}
"""Numbers in the released weights, a tied table once."""
