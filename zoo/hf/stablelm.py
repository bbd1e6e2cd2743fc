"""StableLM and StableLM 2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keyed import PRE
from zoo.hf._keys import QKV_BIAS, Keys
from zoo.hf._llama_like import LlamaLike
from zoo.hf._pairs import Pair, same
from zoo.hf._rope import FRACTION
from zoo.settings.edits import SpecJson


class StableLM(LlamaLike):
    """Llama with LayerNorm, partial RoPE, and branches one after the other or side by side. Bellagente et al. 2024,
    arXiv:2402.17834."""

    model_types: ClassVar[tuple[str, ...]] = ("stablelm",)
    has_head_dim: ClassVar[bool] = False
    partial_rotary: ClassVar[bool] = True
    norm_keys: ClassVar[Keys] = {"layer_norm_eps": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm"}
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "use_qkv_bias": QKV_BIAS}
    qk_norm_names: ClassVar[Mapping[str, str]] = {}

    def block(self, config: Config) -> SpecJson:
        config.only("hidden_dropout", 0.0)  # transformers applies it to the FFN alone
        return {**super().block(config), "topology": "parallel" if config["use_parallel_residual"] else "serial"}

    def mixer(self, config: Config) -> SpecJson:
        config.only("head_dim", None)
        norm = {"qk_norm": {**self.norm(config), "bias": False}, "qk_norm_over": "heads"}
        return {**super().mixer(config), **(norm if config["qk_layernorm"] else {})}

    def position(self, config: Config) -> SpecJson:
        position, head_dim = super().position(config), self.head_dim(config)
        scaling: SpecJson = {"proportion": position["fraction"], **(position["scaling"] or {})}
        # transformers cuts so many features off a head, and multiplies them with a table of the pairs that turn.
        cut, table = int(head_dim * scaling["proportion"]), head_dim * position["fraction"]
        if cut % 2 or cut != int(table):
            raise UnsupportedError(FRACTION, f"{cut} of a head's {head_dim} features cannot be turned")
        return position

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        return {
            **super().block_config(layer),
            "use_parallel_residual": layer.topology == "parallel",
            "qk_layernorm": attention(layer).qk_norm is not None,
        }

    def norms(self, layer: BlockSpec) -> Mapping[str, str]:
        return PRE if layer.topology == "serial" else {"mixer_residual.norm_in": "input_layernorm"}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        mixer = attention(layer)
        yield from super().mixer_weights(layer, ours, theirs)
        heads, kv_heads, _ = mixer.sizes()
        for part, count in (("q", heads), ("k", kv_heads)) if mixer.qk_norm is not None else ():
            for head in range(count):
                name = f"norms.{head}"
                yield same(f"{ours}.{part}_norm.{name}.gain", f"{theirs}.{part}_layernorm.{name}.weight")
