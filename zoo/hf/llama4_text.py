"""Llama 4, the language model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.errors import UnsupportedError
from zoo.ffns.deepseek_moe import DeepSeekMoE
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._experts import expert_act
from zoo.hf._ffn import name_of
from zoo.hf._gpt import of_transposed
from zoo.hf._layered import Layered
from zoo.hf._layers import FULL
from zoo.hf._pairs import Pair, fused, same
from zoo.mixers.attention import Attention
from zoo.norms.rmsnorm import RMSNorm
from zoo.positions.nope import NoPE
from zoo.sparsities.chunked import Chunked
from zoo.spec import ModelSpec

CHUNKED, FAR, EXPERTS = "chunked_attention", "far", "experts"


class Llama4(Layered):
    """Chunked attention with RoPE in most layers, full attention without positions in the others; experts that read
    what their weights multiply. Meta 2025, https://ai.meta.com/blog/llama-4-multimodal-intelligence."""

    model_types: ClassVar[tuple[str, ...]] = ("llama4_text",)

    def spec(self, config: Config) -> SpecJson:
        config.ignore("no_rope_layer_interval", "interleave_moe_layer_step")  # they say what lists are by default
        config.ignore("output_router_logits", "router_aux_loss_coef", "for_llm_compressor")
        config.only("router_jitter_noise", 0.0)
        return super().spec(config)

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        types, turns = config["layer_types"], config["no_rope_layers"]  # 1 where there is RoPE, despite the name
        for kind in types:
            if kind not in (FULL, CHUNKED):
                raise UnsupportedError("layer_types", f"'{kind}' cannot be converted, only {FULL} and {CHUNKED}")
        kinds = zip(types, turns, strict=True)
        return [[CHUNKED] * (kind == CHUNKED) + [FAR] * (not turned) for kind, turned in kinds]

    def ffn_kinds(self, config: Config) -> list[list[str]]:
        sparse = config["moe_layers"]
        return [[EXPERTS] * (i in sparse) for i in range(config["num_hidden_layers"])]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        experts, types = {"ffn": self._experts(config)}, config["layer_types"]
        return {CHUNKED: self._chunks(config, types), FAR: self._far(config), EXPERTS: experts}

    def _chunks(self, config: Config, types: list[str]) -> SpecJson:
        chunk = config["attention_chunk_size"]
        if CHUNKED in types and chunk is None:
            raise UnsupportedError("attention_chunk_size", "layers with chunked attention need one")
        return {"mixer.sparsity": {"kind": "chunked", "chunk": chunk}}

    def _far(self, config: Config) -> SpecJson:
        """Layers without positions."""
        coefficient, floor = float(config["attn_scale"]), int(config["floor_scale"])
        tuned = {"coefficient": coefficient, "floor": floor} if config["attn_temperature_tuning"] else None
        plain = {"mixer.qk_norm": None, "mixer.qk_norm_after_position": False}
        return {"mixer.position": "nope", "mixer.temperature": tuned, **plain}

    def mixer(self, config: Config) -> SpecJson:
        mixer = {**super().mixer(config), "bias": config["attention_bias"]}
        mixer["position"] = {**mixer["position"], "layout": "interleaved"}
        norm = {"kind": "rmsnorm", "eps": config["rms_norm_eps"], "gain": False} if config["use_qk_norm"] else None
        return {**mixer, "qk_norm": norm, "qk_norm_after_position": norm is not None}

    def ffn(self, config: Config) -> SpecJson:
        return {**super().ffn(config), "d_ff": config["intermediate_size_mlp"]}

    def _experts(self, config: Config) -> SpecJson:
        return {
            "kind": "deepseek_moe",
            "activation": name_of(**self.ffn(config)),
            "d_ff": config["intermediate_size"],
            "experts": config["num_local_experts"],
            "top_k": config["num_experts_per_tok"],
            "shared_experts": 1,
            "weights_on": "input",
            "normalise": False,
            "bias_rate": None,
            "balance_loss": 0.0,
        }

    def config(self, spec: ModelSpec) -> ConfigJson:
        mixers = [attention(layer) for layer in spec.layers]
        chunks = {mixer.sparsity.chunk for mixer in mixers if isinstance(mixer.sparsity, Chunked)}
        widths = {key: value for layer in spec.layers for key, value in self.ffn_config(layer).items()}
        return {
            **super().config(spec),
            **widths,
            **_temperature_config(mixers),
            "layer_types": [FULL if mixer.sparsity is None else CHUNKED for mixer in mixers],
            "no_rope_layers": [int(_turns(layer)) for layer in spec.layers],
            "moe_layers": [i for i, layer in enumerate(spec.layers) if isinstance(layer.ffn, DeepSeekMoE)],
            **({"attention_chunk_size": min(chunks)} if chunks else {}),
        }

    def typical(self, spec: ModelSpec) -> BlockSpec:
        return next((layer for layer in spec.layers if _turns(layer)), spec.layers[0])

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        mixer = attention(layer)
        own = {"attention_bias": bool(mixer.bias), "use_qk_norm": isinstance(mixer.qk_norm, RMSNorm)}
        return {**super().block_config(layer), **own}

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        return super().position_config(layer) if _turns(layer) else {}

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        moe = layer.ffn
        if not isinstance(moe, DeepSeekMoE):
            plain = super().ffn_config(layer)
            return {"hidden_act": plain["hidden_act"], "intermediate_size_mlp": plain["intermediate_size"]}
        sizes = {"intermediate_size": moe.width, "num_local_experts": moe.experts, "num_experts_per_tok": moe.top_k}
        return {"hidden_act": expert_act(moe), **sizes}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        mixer = attention(layer).model_copy(update={"qk_norm": None})  # its norm has no weights
        yield from super().mixer_weights(layer.model_copy(update={"mixer": mixer}), ours, theirs)

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        moe, theirs = layer.ffn, theirs.removesuffix("mlp") + "feed_forward"
        if not isinstance(moe, DeepSeekMoE):
            yield from super().ffn_weights(layer, ours, theirs)
            return
        yield same(f"{ours}.router.weight", f"{theirs}.router.weight")
        wide = [f"{ours}.experts.gate.weight", f"{ours}.experts.up.weight"]
        yield of_transposed(fused(wide, f"{theirs}.experts.gate_up_proj", [moe.width] * 2, dim=1))
        yield of_transposed(same(f"{ours}.experts.down.weight", f"{theirs}.experts.down_proj"))
        for part in ("gate", "up", "down"):
            yield same(f"{ours}.shared.{part}.weight", f"{theirs}.shared_expert.{part}_proj.weight")


def _turns(layer: BlockSpec) -> bool:
    return not isinstance(attention(layer).position, NoPE)


def _temperature_config(mixers: list[Attention]) -> ConfigJson:
    found = next((mixer.temperature for mixer in mixers if mixer.temperature is not None), None)
    tuned = {} if found is None else {"attn_scale": found.coefficient, "floor_scale": found.floor}
    return {"attn_temperature_tuning": found is not None, **tuned}
