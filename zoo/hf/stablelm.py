"""StableLM and StableLM 2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.errors import UnsupportedError
from zoo.hf._common import attention, norm_eps
from zoo.hf._config import Config, ConfigJson
from zoo.hf._gpt import QKV
from zoo.hf._llama_like import LlamaLike
from zoo.hf._pairs import Pair, layernorm, same
from zoo.hf._rope import FRACTION
from zoo.spec import ModelSpec


class StableLM(LlamaLike):
    """Llama with LayerNorm, partial RoPE, and branches one after the other or side by side. Bellagente et al. 2024,
    arXiv:2402.17834."""

    model_types: ClassVar[tuple[str, ...]] = ("stablelm",)
    partial_rotary: ClassVar[bool] = True

    def block(self, config: Config) -> SpecJson:
        config.only("hidden_dropout", 0.0)  # transformers applies it to the FFN alone
        return {**super().block(config), "topology": "parallel" if config["use_parallel_residual"] else "serial"}

    def norm(self, config: Config) -> SpecJson:
        return {"kind": "layernorm", "eps": config["layer_norm_eps"]}

    def mixer(self, config: Config) -> SpecJson:
        config.only("head_dim", None)
        mixer = {**super().mixer(config), "bias": list(QKV) if config["use_qkv_bias"] else False}
        if config["qk_layernorm"]:
            mixer |= {"qk_norm": {**self.norm(config), "bias": False}, "qk_norm_over": "heads"}
        return mixer

    def position(self, config: Config) -> SpecJson:
        position, head_dim = super().position(config), self.head_dim(config)
        scaling: SpecJson = {"proportion": position["fraction"], **(position["scaling"] or {})}
        # transformers cuts so many features off a head, and multiplies them with a table of the pairs that turn.
        cut, table = int(head_dim * scaling["proportion"]), head_dim * position["fraction"]
        if cut % 2 or cut != int(table):
            raise UnsupportedError(FRACTION, f"{cut} of a head's {head_dim} features cannot be turned")
        return position

    def config(self, spec: ModelSpec) -> ConfigJson:
        return {key: value for key, value in super().config(spec).items() if key != "head_dim"}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        mixer = attention(layer)
        return {
            **super().block_config(layer),
            "use_parallel_residual": layer.topology == "parallel",
            "qk_layernorm": mixer.qk_norm is not None,
            "use_qkv_bias": bool(mixer.bias),
        }

    def norm_config(self, layer: BlockSpec) -> ConfigJson:
        return {"layer_norm_eps": norm_eps(layer)}

    def final_norm_weights(self, spec: ModelSpec) -> Iterator[Pair]:
        return layernorm("norm", "model.norm")

    def norm_weights(self, ours: str, theirs: str) -> Iterator[Pair]:
        return layernorm(f"{ours}.mixer_residual.norm_in", f"{theirs}.input_layernorm")

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield from super().weights(spec)
        for i, layer in enumerate(spec.layers):
            if layer.topology == "serial":
                theirs = f"model.layers.{i}.post_attention_layernorm"
                yield from layernorm(f"blocks.{i}.ffn_residual.norm_in", theirs)

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        mixer = attention(layer)
        plain = layer.model_copy(update={"mixer": mixer.model_copy(update={"qk_norm": None})})
        yield from super().mixer_weights(plain, ours, theirs)
        heads, kv_heads, _ = mixer.sizes()
        for part, count in (("q", heads), ("k", kv_heads)) if mixer.qk_norm is not None else ():
            for head in range(count):
                name = f"norms.{head}"
                yield same(f"{ours}.{part}_norm.{name}.gain", f"{theirs}.{part}_layernorm.{name}.weight")
