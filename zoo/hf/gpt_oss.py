"""gpt-oss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.ffns._moe import MoE
from zoo.ffns.topk_moe import TopKMoE
from zoo.hf._common import expect
from zoo.hf._config import Config, ConfigJson
from zoo.hf._experts import alternating, balance_loss
from zoo.hf._keys import BIAS, Keys, read, write
from zoo.hf._layers import window_config, windows
from zoo.hf._llama_like import LlamaLike
from zoo.hf._pairs import Pair, both, same, transposed
from zoo.hf.mistral import Mixtral
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class GptOss(LlamaLike):
    """Llama with sinks, windows on some layers, and experts with clamped SwiGLU. OpenAI 2025, arXiv:2508.10925."""

    model_types: ClassVar[tuple[str, ...]] = ("gpt_oss",)
    # Transformers does not read them.
    ignored: ClassVar[tuple[str, ...]] = ("experts_per_token", "initial_context_length")
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS}
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention", "sinks": True}
    experts_class: ClassVar[type[MoE]] = TopKMoE
    expert_keys: ClassVar[Keys] = Mixtral.expert_keys

    def spec(self, config: Config) -> SpecJson:
        return {**super().spec(config), **windows(config)}

    def ffn(self, config: Config) -> SpecJson:
        config.ignore("hidden_act")  # the experts have their own
        return {
            "kind": "topk_moe",
            "activation": "clamped_swiglu",
            "swiglu_alpha": float(config.get("swiglu_alpha", 1.702)),
            "swiglu_limit": float(config.get("swiglu_limit", 7.0)),
            "bias": True,
            "router_bias": True,
            "balance_loss": balance_loss(config),
            **read(self.expert_keys, config),
        }

    def config(self, spec: ModelSpec) -> ConfigJson:
        return {**super().config(spec), **window_config(spec)}

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        experts = expect(layer.ffn, TopKMoE, "ffn")
        clamp = {"swiglu_alpha": experts.swiglu_alpha, "swiglu_limit": experts.swiglu_limit}
        sizes = write(self.expert_keys, experts, "ffn")
        return {**sizes, **{key: value for key, value in clamp.items() if value is not None}}

    def expert_weights(self, moe: MoE, ours: str, theirs: str) -> Iterator[Pair]:
        yield from both(f"{ours}.router", f"{theirs}.router", bias=True)
        ours, theirs = f"{ours}.experts", f"{theirs}.experts"
        yield alternating([f"{ours}.gate.weight", f"{ours}.up.weight"], f"{theirs}.gate_up_proj")
        yield alternating([f"{ours}.gate.bias", f"{ours}.up.bias"], f"{theirs}.gate_up_proj_bias")
        yield transposed(f"{ours}.down.weight", f"{theirs}.down_proj")
        yield same(f"{ours}.down.bias", f"{theirs}.down_proj_bias")
