"""MiniMax-Text-01 and MiniMax-M1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.errors import UnsupportedError
from zoo.hf._config import Config, ConfigJson
from zoo.hf._ffn import plain_activation
from zoo.hf._layered import Layered
from zoo.hf._layers import FULL
from zoo.hf._pairs import Pair, fused, same
from zoo.hf.mixtral import Mixtral
from zoo.mixers.attention import Attention
from zoo.mixers.lightning import LightningAttention
from zoo.spec import ModelSpec

LINEAR = "linear_attention"


class MiniMax(Mixtral, Layered):
    """Mixtral with lightning attention in most layers, whose shortcuts carry the normalised stream. MiniMax 2025,
    arXiv:2501.08313."""

    model_types: ClassVar[tuple[str, ...]] = ("minimax",)
    buffers: ClassVar[tuple[str, ...]] = tuple(
        f"*.self_attn.{name}" for name in ("slope_rate", "query_decay", "key_decay", "diagonal_decay")
    )

    def spec(self, config: Config) -> SpecJson:
        config.only("router_jitter_noise", 0.0)
        config.ignore("block_size")  # how many tokens are computed at a time
        return super().spec(config)

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        types = config["layer_types"]
        for kind in types:
            if kind not in (FULL, LINEAR):
                raise UnsupportedError("layer_types", f"'{kind}' cannot be converted, only {FULL} and {LINEAR}")
        return [[LINEAR] * (kind == LINEAR) for kind in types]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        placement = self._placement(config, "linear")
        return {LINEAR: {"mixer": self._lightning(config), "norm_placement": placement}}

    def block(self, config: Config) -> SpecJson:
        return {**super().block(config), "norm_placement": self._placement(config, "full")}

    def _placement(self, config: Config, kind: str) -> SpecJson:
        """Residual placement of both branches of a layer, which share their factors."""
        scales = {}
        for ours, theirs in (("stream_scale", "alpha"), ("branch_scale", "beta")):
            factor = config[f"{kind}_attn_{theirs}_factor"]
            if kind == FULL.removesuffix("_attention") or LINEAR in config["layer_types"]:
                config.only(f"mlp_{theirs}_factor", factor)
            scales[ours] = float(factor)
        return {"kind": "normed", **scales}

    def _lightning(self, config: Config) -> SpecJson:
        return {
            "kind": "lightning",
            "heads": config["num_attention_heads"],
            "head_dim": self.head_dim(config),
            "activation": plain_activation(config, "hidden_act"),
            "output_norm": {"kind": "rmsnorm", "eps": 1e-6},
        }

    def config(self, spec: ModelSpec) -> ConfigJson:
        types = [FULL if isinstance(layer.mixer, Attention) else LINEAR for layer in spec.layers]
        placement = spec.layers[0].norm_placement
        factors = {
            f"{kind}_{name}_factor": scale
            for kind in ("full_attn", "linear_attn", "mlp")
            for name, scale in (("alpha", placement.stream_scale), ("beta", placement.branch_scale))
        }
        return {**super().config(spec), **factors, "layer_types": types}

    def typical(self, spec: ModelSpec) -> BlockSpec:
        return next((layer for layer in spec.layers if isinstance(layer.mixer, Attention)), spec.layers[0])

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        mixer = layer.mixer
        if not isinstance(mixer, LightningAttention):
            yield from super().mixer_weights(layer, ours, theirs)
            return
        sizes = [mixer.key_features] * 3
        yield fused([f"{ours}.{name}.weight" for name in "qkv"], f"{theirs}.qkv_proj.weight", sizes, mixer.heads)
        yield same(f"{ours}.gate.weight", f"{theirs}.output_gate.weight")
        yield same(f"{ours}.output_norm.gain", f"{theirs}.norm.weight")
        yield same(f"{ours}.o.weight", f"{theirs}.out_proj.weight")
