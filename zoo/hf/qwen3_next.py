"""Qwen3-Next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.ffns.topk_moe import TopKMoE
from zoo.hf._common import attention, dense, norm_eps
from zoo.hf._config import Config
from zoo.hf._experts import gated_experts
from zoo.hf._layers import FULL, pattern
from zoo.hf._llama_like import LlamaLike
from zoo.hf._pairs import Pair, fused, reshaped, same
from zoo.mixers.attention import Attention
from zoo.mixers.gated_deltanet import GatedDeltaNet
from zoo.spec import BASE, ModelSpec

LINEAR = "linear_attention"


class Qwen3Next(LlamaLike):
    """Gated DeltaNet in most layers and gated attention in the others, with experts. Qwen Team 2025,
    https://huggingface.co/Qwen/Qwen3-Next-80B-A3B-Instruct."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen3_next",)
    partial_rotary: ClassVar[bool] = True

    def spec(self, config: Config) -> dict[str, Any]:
        config.only("hidden_act", "silu")
        config.only("attention_bias", False)
        deltanet, experts = {"mixer": self._deltanet(config)}, {"ffn": self._experts(config)}
        blocks = {"linear": deltanet, "experts": experts, "linear_experts": {**deltanet, **experts}}
        names = self._names(config)
        return {**super().spec(config), **pattern(names, blocks)}

    def _names(self, config: Config) -> list[str]:
        """The block of each layer, by its mixer and its FFN."""
        dense_layers, every, experts = (
            config.get("mlp_only_layers") or (),
            config["decoder_sparse_step"],
            config["num_experts"],
        )
        names = []
        for i, kind in enumerate(config["layer_types"]):
            if kind not in (FULL, LINEAR):
                raise UnsupportedError("layer_types", f"'{kind}' cannot be converted, only {FULL} and {LINEAR}")
            sparse = i not in dense_layers and experts > 0 and (i + 1) % every == 0
            names.append("_".join(["linear"] * (kind == LINEAR) + ["experts"] * sparse) or BASE)
        return names

    def norm(self, config: Config) -> dict[str, Any]:
        return {**super().norm(config), "unit_offset": True}

    def mixer(self, config: Config) -> dict[str, Any]:
        return {**super().mixer(config), "qk_norm": self.norm(config), "gate": "feature"}

    def _deltanet(self, config: Config) -> dict[str, Any]:
        return {
            "kind": "gated_deltanet",
            "heads": config["linear_num_value_heads"],
            "k_heads": config["linear_num_key_heads"],
            "head_dim": config["linear_key_head_dim"],
            "v_dim": config["linear_value_head_dim"],
            "conv": config["linear_conv_kernel_dim"],
            "head_norm": {"kind": "rmsnorm", "eps": config["rms_norm_eps"]},
        }

    def _experts(self, config: Config) -> dict[str, Any]:
        width, shared = config["moe_intermediate_size"], config["shared_expert_intermediate_size"]
        if shared % width or not shared:
            reason = f"{shared} cannot be converted, only multiples of moe_intermediate_size"
            raise UnsupportedError("shared_expert_intermediate_size", reason)
        weight = config["router_aux_loss_coef"]
        if not config["output_router_logits"]:
            weight = 0.0
        return {
            "kind": "topk_moe",
            "d_ff": width,
            # A model of dense layers only may say that there are none.
            "experts": config["num_experts"] or config["num_experts_per_tok"],
            "top_k": config["num_experts_per_tok"],
            "softmax_over": "chosen" if config["norm_topk_prob"] else "all",
            "shared_experts": shared // width,
            "shared_gate": True,
            "balance_loss": weight * config["num_experts_per_tok"] / config["num_hidden_layers"],
        }

    def config(self, spec: ModelSpec) -> dict[str, Any]:
        layers = spec.layers
        sparse = [isinstance(layer.ffn, TopKMoE) for layer in layers]
        return {
            "vocab_size": spec.vocab_size,
            "hidden_size": spec.d_model,
            "num_hidden_layers": spec.n_layers,
            "tie_word_embeddings": spec.tie_embeddings,
            "rms_norm_eps": norm_eps(layers[0]),
            "layer_types": [FULL if isinstance(layer.mixer, Attention) else LINEAR for layer in layers],
            "mlp_only_layers": [i for i, has_experts in enumerate(sparse) if not has_experts],
            **{key: value for layer in layers for key, value in _part_configs(self, layer).items()},
        }

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        if isinstance(layer.mixer, GatedDeltaNet):
            yield from _deltanet_weights(layer.mixer, ours, theirs.removesuffix("self_attn") + "linear_attn")
            return
        mixer = attention(layer)
        heads, _, head_dim = mixer.sizes()
        yield fused(
            [f"{ours}.q.weight", f"{ours}.gate.project.weight"], f"{theirs}.q_proj.weight", [head_dim] * 2, heads
        )
        for name in ("k", "v", "o"):
            yield same(f"{ours}.{name}.weight", f"{theirs}.{name}_proj.weight")
        for name in ("q_norm", "k_norm"):
            yield same(f"{ours}.{name}.gain", f"{theirs}.{name}.weight")

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        experts = layer.ffn
        if not isinstance(experts, TopKMoE):
            yield from super().ffn_weights(layer, ours, theirs)
            return
        yield same(f"{ours}.router.weight", f"{theirs}.gate.weight")
        yield from gated_experts(f"{ours}.experts", f"{theirs}.experts", experts.width, experts.experts)
        for name in ("gate", "up", "down"):
            yield same(f"{ours}.shared.{name}.weight", f"{theirs}.shared_expert.{name}_proj.weight")
        yield same(f"{ours}.shared_gate.weight", f"{theirs}.shared_expert_gate.weight")


def _part_configs(family: Qwen3Next, layer: BlockSpec) -> dict[str, Any]:
    """Arguments of the config class that a layer tells."""
    return {**_mixer_config(family, layer), **_ffn_config(layer)}


def _mixer_config(family: Qwen3Next, layer: BlockSpec) -> dict[str, Any]:
    mixer = layer.mixer
    if isinstance(mixer, GatedDeltaNet):
        k_heads, head_dim, v_dim = mixer.sizes()
        return {
            "linear_num_value_heads": mixer.heads,
            "linear_num_key_heads": k_heads,
            "linear_key_head_dim": head_dim,
            "linear_value_head_dim": v_dim,
            "linear_conv_kernel_dim": mixer.conv,
        }
    own = attention(layer)
    return {
        "num_attention_heads": own.heads,
        "num_key_value_heads": own.kv_heads,
        "head_dim": own.head_dim,
        "attention_dropout": own.dropout,
        **family.position_config(layer),
    }


def _ffn_config(layer: BlockSpec) -> dict[str, Any]:
    ffn = layer.ffn
    if isinstance(ffn, TopKMoE):
        return {
            "moe_intermediate_size": ffn.width,
            "shared_expert_intermediate_size": ffn.shared_experts * ffn.width,
            "num_experts": ffn.experts,
            "num_experts_per_tok": ffn.top_k,
            "norm_topk_prob": ffn.softmax_over == "chosen",
        }
    return {"intermediate_size": dense(layer).width}


def _deltanet_weights(mixer: GatedDeltaNet, ours: str, theirs: str) -> Iterator[Pair]:
    """Its projections hold query, key, values and gates of one key head after the other."""
    k_heads, head_dim, v_dim = mixer.sizes()
    per_key, channels = mixer.heads // k_heads, sum(mixer.widths)
    wide = [f"{ours}.{name}.weight" for name in ("q", "k", "v", "gate")]
    sizes = [head_dim, head_dim, per_key * v_dim, per_key * v_dim]
    yield fused(wide, f"{theirs}.in_proj_qkvz.weight", sizes, k_heads)
    thin = [f"{ours}.{name}.weight" for name in ("strength", "forget")]
    yield fused(thin, f"{theirs}.in_proj_ba.weight", [per_key] * 2, k_heads)
    yield reshaped(f"{ours}.conv.weight", f"{theirs}.conv1d.weight", (channels, mixer.conv), (channels, 1, mixer.conv))
    yield same(f"{ours}.decay.log_rate", f"{theirs}.A_log")
    yield same(f"{ours}.decay.step_bias", f"{theirs}.dt_bias")
    yield same(f"{ours}.head_norm.gain", f"{theirs}.norm.weight")
    yield same(f"{ours}.o.weight", f"{theirs}.out_proj.weight")
