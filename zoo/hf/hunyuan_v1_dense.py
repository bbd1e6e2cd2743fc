"""Hunyuan's dense models of 2025."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import BIAS, Keys
from zoo.hf._llama_like import LlamaLike
from zoo.hf._pairs import Pair, both, same
from zoo.positions.rope import RoPE
from zoo.positions.scalings.ntk import NTK
from zoo.settings.edits import SpecJson


class Hunyuan(LlamaLike):
    """Llama with a norm of each head's queries and keys after they are turned. Tencent 2025,
    https://github.com/Tencent-Hunyuan/Hunyuan-7B."""

    model_types: ClassVar[tuple[str, ...]] = ("hunyuan_v1_dense",)
    qk_norm: ClassVar[SpecJson | None] = {"qk_norm_after_position": True}
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS}

    def mixer(self, config: Config) -> SpecJson:
        config.ignore("eod_token_id")
        return super().mixer(config)

    def position(self, config: Config) -> SpecJson:
        """`dynamic` with an `alpha` is NTK-aware scaling by that, whatever the length, and reads nothing else."""
        parameters = config.get("rope_parameters") or {}
        if parameters.get("rope_type") != "dynamic" or not parameters.get("alpha"):
            return super().position(config)
        config.ignore("max_position_embeddings", "rope_theta", "rope_scaling")
        scaling = {"kind": "ntk", "factor": float(parameters["alpha"])}
        return RoPE.model_validate({"base": float(parameters["rope_theta"]), "scaling": scaling}).model_dump(
            mode="json"
        )

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        position = attention(layer).position
        if not isinstance(position, RoPE) or not isinstance(position.scaling, NTK):
            return super().position_config(layer)
        own = {"rope_type": "dynamic", "alpha": position.scaling.factor, "factor": 1.0}
        return {"rope_parameters": {"rope_theta": position.base, **own}}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        for name in ("q", "k", "v", "o"):
            yield from both(f"{ours}.{name}", f"{theirs}.{name}_proj", bias=name in attention(layer).bias)
        yield same(f"{ours}.q_norm.gain", f"{theirs}.query_layernorm.weight")
        yield same(f"{ours}.k_norm.gain", f"{theirs}.key_layernorm.weight")
