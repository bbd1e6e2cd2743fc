"""DiffLlama."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from zoo.block_spec import BlockSpec
from zoo.hf._common import expect
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keyed import Keyed
from zoo.hf._keys import BIAS, Key, Keys
from zoo.hf._llama_like import LlamaLike
from zoo.hf._pairs import Pair, Tensors, both, stacked
from zoo.mixers import Mixer
from zoo.mixers.differential import Differential
from zoo.settings.edits import SpecJson


class DiffLlama(LlamaLike):
    """Llama with differential attention. Ye et al. 2024, arXiv:2410.05258; https://huggingface.co/kajuma."""

    model_types: ClassVar[tuple[str, ...]] = ("diffllama",)
    mixer_class: ClassVar[type[Mixer]] = Differential
    mixer_keys: ClassVar[Keys] = {
        "num_attention_heads": Key("heads", lambda single: single // 2, lambda pairs: 2 * pairs),
        "num_key_value_heads": Key("kv_heads", lambda single: single // 2, lambda pairs: 2 * pairs),
        "attention_dropout": Key("dropout", lambda _: 0.0, lambda _: 0.0),  # it refuses any
        "attention_bias": BIAS,
    }
    mixer_fixed: ClassVar[SpecJson] = {"kind": "differential"}

    def spec(self, config: Config) -> SpecJson:
        config.ignore("lambda_std_dev")  # an initial value
        return super().spec(config)

    def mixer(self, config: Config) -> SpecJson:
        norm = {"kind": "rmsnorm", "eps": config["rms_norm_eps"], "gain": False}
        return {**super().mixer(config), "head_norm": norm}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        mixer = expect(layer.mixer, Differential, "mixer")
        return {**Keyed.block_config(self, layer), "head_dim": mixer.head_dim}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        mixer = expect(layer.mixer, Differential, "mixer")
        for name in ("q", "k", "o"):
            yield from both(f"{ours}.{name}", f"{theirs}.{name}_proj", bias=name in mixer.bias)
        _, kv_heads, head_dim = mixer.sizes()
        for kind in ("weight", "bias") if "v" in mixer.bias else ("weight",):
            yield _paired(f"{ours}.v.{kind}", f"{theirs}.v_proj.{kind}", kv_heads // 2, head_dim)
        vectors = [f"{theirs}.lambda_{name}" for name in ("q1", "k1", "q2", "k2")]
        yield stacked(f"{ours}.mixing.vectors", vectors)


def _paired(ours: str, theirs: str, pairs: int, head_dim: int) -> Pair:
    """Value heads: ours lie in pairs, theirs are all first halves and then all second ones."""

    def swap(x: torch.Tensor, first: int, second: int) -> torch.Tensor:
        out: torch.Tensor = x.unflatten(0, (first, second, head_dim)).transpose(0, 1).flatten(0, 2)
        return out

    def read(x: Tensors) -> Tensors:
        return [swap(x[0], 2, pairs)]

    def write(x: Tensors) -> Tensors:
        return [swap(x[0], pairs, 2)]

    return Pair((ours,), (theirs,), read, write)
