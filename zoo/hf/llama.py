"""Llama, and models that differ from it by a few settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

import torch

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.ffns.xielu import XIELU
from zoo.hf._config import BIAS, DROPOUT, QKV, QKV_BIAS, Config, ConfigJson, Key, Keys, either, read, write
from zoo.hf._family import Pair, Tensors, both, same, stacked
from zoo.hf._keyed import PRE, Keyed, LlamaLike
from zoo.hf._layers import SLIDING, attention, expect, layered, turns, types_of, used_window_config
from zoo.hf._rope import FRACTION
from zoo.hf._rope_by_layer import SomeRoPE
from zoo.mixers import Mixer
from zoo.mixers.differential import Differential
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class Llama(LlamaLike):
    """Llama, Llama 2, Llama 3 and models that share their config: Yi, DeepSeek LLM, SmolLM2. Touvron et al. 2023,
    arXiv:2302.13971."""

    model_types: ClassVar[tuple[str, ...]] = ("llama",)
    # transformers does not read them.
    ignored: ClassVar[tuple[str, ...]] = ("is_llama_config", "max_sequence_length", "transformers.js_config")
    preference: ClassVar[int] = 0
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS}
    ffn_keys: ClassVar[Keys] = {**LlamaLike.ffn_keys, "mlp_bias": "bias"}


class Arcee(Llama):
    """Arcee's AFM: Llama with squared ReLU. Arcee AI 2025, https://huggingface.co/arcee-ai/AFM-4.5B-Base."""

    model_types: ClassVar[tuple[str, ...]] = ("arcee",)
    preference: ClassVar[int] = 1
    gated: ClassVar[bool] = False


class Helium(Llama):
    """Helium 1: Llama with interleaved RoPE, and heads whose widths add up to d_model. Kyutai 2025,
    https://kyutai.org/2025/04/30/helium.html."""

    model_types: ClassVar[tuple[str, ...]] = ("helium",)
    preference: ClassVar[int] = 1
    rope_layout: ClassVar[Literal["half", "interleaved"]] = "interleaved"
    mixer_keys: ClassVar[Keys] = {**Llama.mixer_keys, "attention_bias": QKV_BIAS}


class InternLM3(Llama):
    """InternLM 3 and IQuest-Coder: Llama with another `model_type`. Shanghai AI Laboratory 2025,
    https://huggingface.co/internlm/internlm3-8b-instruct; IQuest Lab 2026,
    https://huggingface.co/IQuestLab/IQuest-Coder-V1-40B-Instruct."""

    model_types: ClassVar[tuple[str, ...]] = ("internlm3", "iquestcoder")
    preference: ClassVar[int] = 3


class Jais2(LlamaLike):
    """Jais 2: Llama with LayerNorm, biases, and an FFN of squared ReLU. Inception 2025,
    https://huggingface.co/inceptionai/Jais-2-8B-Chat."""

    model_types: ClassVar[tuple[str, ...]] = ("jais2",)
    preference: ClassVar[int] = 2
    norm_keys: ClassVar[Keys] = {"layer_norm_eps": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm"}
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS}
    gated: ClassVar[bool] = False
    ffn_keys: ClassVar[Keys] = {**LlamaLike.ffn_keys, "mlp_bias": "bias"}


class SeedOss(Llama):
    """Seed-OSS: Llama with biases on queries, keys and values, and dropout on the branches. ByteDance Seed 2025,
    https://huggingface.co/ByteDance-Seed/Seed-OSS-36B-Base."""

    model_types: ClassVar[tuple[str, ...]] = ("seed_oss",)
    preference: ClassVar[int] = 1
    block_keys: ClassVar[Keys] = {"residual_dropout": DROPOUT}

    def mixer(self, config: Config) -> SpecJson:
        biases = [*QKV] * config["attention_bias"] + ["o"] * config["attention_out_bias"]
        return {**super().mixer(config), "bias": biases}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        bias = attention(layer).bias
        return {**super().block_config(layer), "attention_bias": "q" in bias, "attention_out_bias": "o" in bias}


class SmolLM3(SomeRoPE, Llama):
    """SmolLM3: Llama without positions on some layers, and windows on some. Bakouch et al. 2025,
    https://huggingface.co/blog/smollm3."""

    model_types: ClassVar[tuple[str, ...]] = ("smollm3",)
    preference: ClassVar[int] = 1

    def spec(self, config: Config) -> SpecJson:
        config.ignore("no_rope_layer_interval", "max_window_layers")  # they set, at most, defaults of lists
        types, rotary = types_of(config), config["no_rope_layers"]  # 1 where there is RoPE, despite the name
        if len(rotary) != len(types):
            raise UnsupportedError(
                "no_rope_layers", f"must have {len(types)} entries, one per layer, not {len(rotary)}"
            )
        window = config["sliding_window"]
        if SLIDING in types and (window is None or not config["use_sliding_window"]):
            raise UnsupportedError("layer_types", f"{SLIDING} needs use_sliding_window and sliding_window")
        config.ignore("use_sliding_window", "sliding_window")
        kinds = [
            ["window"] * (kind == SLIDING) + ["nope"] * (not turned) for kind, turned in zip(types, rotary, strict=True)
        ]
        edits = {"nope": {"mixer.position": "nope"}, "window": {"mixer.window": window}}
        return {**super().spec(config), **layered(kinds, edits)}

    def config(self, spec: ModelSpec) -> ConfigJson:
        rotary = [int(turns(layer)) for layer in spec.layers]
        return {**super().config(spec), "no_rope_layers": rotary, **used_window_config(spec)}


class Apertus(LlamaLike):
    """Apertus: Llama with xIELU and a QK norm for each head. Apertus Team 2025, arXiv:2509.14233."""

    model_types: ClassVar[tuple[str, ...]] = ("apertus",)
    qk_norm: ClassVar[SpecJson | None] = {}
    buffers: ClassVar[tuple[str, ...]] = (*LlamaLike.buffers, "*.act_fn.beta", "*.act_fn.eps")
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS}
    gated: ClassVar[bool] = False
    has_head_dim: ClassVar[bool] = False
    norm_names: ClassVar[Mapping[str, str]] = {
        "mixer_residual.norm_in": "attention_layernorm",
        "ffn_residual.norm_in": "feedforward_layernorm",
    }

    def ffn(self, config: Config) -> SpecJson:
        if config[self.activation_key] == "xielu":
            return {"kind": "xielu", **read(self.ffn_keys, config)}
        return super().ffn(config)

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        if isinstance(layer.ffn, XIELU):
            return {self.activation_key: "xielu", **write(self.ffn_keys, layer.ffn, "ffn")}
        return super().ffn_config(layer)

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        yield from super().ffn_weights(layer, ours, theirs)
        if isinstance(layer.ffn, XIELU):
            yield same(f"{ours}.activation.positive", f"{theirs}.act_fn.alpha_p")
            yield same(f"{ours}.activation.negative", f"{theirs}.act_fn.alpha_n")


class DiffLlama(LlamaLike):
    """Llama with differential attention. Ye et al. 2024, arXiv:2410.05258; https://huggingface.co/kajuma."""

    model_types: ClassVar[tuple[str, ...]] = ("diffllama",)
    ignored: ClassVar[tuple[str, ...]] = ("lambda_std_dev",)  # an initial value
    mixer_class: ClassVar[type[Mixer]] = Differential
    mixer_keys: ClassVar[Keys] = {
        "num_attention_heads": Key("heads", lambda single: single // 2, lambda pairs: 2 * pairs),
        "num_key_value_heads": Key("kv_heads", lambda single: single // 2, lambda pairs: 2 * pairs),
        "attention_dropout": Key("dropout", lambda _: 0.0, lambda _: 0.0),  # transformers refuses any dropout
        "attention_bias": BIAS,
    }
    mixer_fixed: ClassVar[SpecJson] = {"kind": "differential"}

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
    """Rows of value heads: ours pair by pair; theirs all first halves, then all second halves."""

    def swap(x: torch.Tensor, first: int, second: int) -> torch.Tensor:
        out: torch.Tensor = x.unflatten(0, (first, second, head_dim)).transpose(0, 1).flatten(0, 2)
        return out

    def read(x: Tensors) -> Tensors:
        return [swap(x[0], 2, pairs)]

    def write(x: Tensors) -> Tensors:
        return [swap(x[0], pairs, 2)]

    return Pair((ours,), (theirs,), read, write)


class NanoChat(LlamaLike):
    """nanochat: Llama with norms without gains, also after the embedding and, on queries and keys, after RoPE, squared
    ReLU and capped logits. Karpathy 2025, https://github.com/karpathy/nanochat."""

    model_types: ClassVar[tuple[str, ...]] = ("nanochat",)
    qk_norm: ClassVar[SpecJson | None] = {"qk_norm_after_position": True}
    has_head_dim: ClassVar[bool] = False
    model_keys: ClassVar[Keys] = {**LlamaLike.model_keys, "final_logit_softcapping": "final_softcap"}
    model_fixed: ClassVar[SpecJson] = {"embedding_norm": True}
    norm_fixed: ClassVar[SpecJson] = {"kind": "rmsnorm", "gain": False}
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS}
    gated: ClassVar[bool] = False
    ffn_names: ClassVar[Mapping[str, str]] = {"up": "fc1", "down": "fc2"}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        mixer = attention(layer)
        heads, kv_heads, _ = mixer.sizes()
        for part, count in (("q", heads), ("k", kv_heads)):
            for kind in ("weight", "bias") if part in mixer.bias else ("weight",):
                yield _halves_swapped(f"{ours}.{part}.{kind}", f"{theirs}.{part}_proj.{kind}", count)
        for part in ("v", "o"):
            yield from both(f"{ours}.{part}", f"{theirs}.{part}_proj", bias=part in mixer.bias)


def _halves_swapped(ours: str, theirs: str, heads: int) -> Pair:
    """Rows of queries or keys: nanochat rotates in the opposite direction, as if each head's halves were exchanged."""

    def swap(x: Tensors) -> Tensors:
        return [x[0].unflatten(0, (heads, 2, -1)).flip(1).flatten(0, 2)]

    return Pair((ours,), (theirs,), swap, swap)


class StableLM(LlamaLike):
    """StableLM: Llama with LayerNorm, partial RoPE, and serial or parallel branches. Bellagente et al. 2024,
    arXiv:2402.17834."""

    model_types: ClassVar[tuple[str, ...]] = ("stablelm",)
    has_head_dim: ClassVar[bool] = False
    partial_rotary: ClassVar[bool] = True
    block_keys: ClassVar[Keys] = {"use_parallel_residual": either("topology", "parallel", "serial")}
    norm_keys: ClassVar[Keys] = {"layer_norm_eps": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm"}
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "use_qkv_bias": QKV_BIAS}
    qk_norm_names: ClassVar[Mapping[str, str]] = {}

    def mixer(self, config: Config) -> SpecJson:
        config.only("hidden_dropout", 0.0)  # transformers applies it to the FFN alone
        config.only("head_dim", None)
        norm = {"qk_norm": {**self.norm(config), "bias": False}, "qk_norm_over": "heads"}
        return {**super().mixer(config), **(norm if config["qk_layernorm"] else {})}

    def position(self, config: Config) -> SpecJson:
        position, head_dim = super().position(config), self.head_dim(config)
        scaling: SpecJson = {"proportion": position["fraction"], **(position["scaling"] or {})}
        # transformers slices `cut` features off a head, and multiplies them with a table of `table` features.
        cut, table = int(head_dim * scaling["proportion"]), head_dim * position["fraction"]
        if cut % 2 or cut != int(table):
            raise UnsupportedError(FRACTION, f"{cut} of a head's {head_dim} features cannot be rotated")
        return position

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        return {**super().block_config(layer), "qk_layernorm": attention(layer).qk_norm is not None}

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
