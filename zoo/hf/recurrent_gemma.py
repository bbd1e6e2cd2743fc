"""RecurrentGemma."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import torch

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.hf._config import QKV, Config, ConfigJson, Key, Keys
from zoo.hf._family import Pair, both, convolution, reshaped, same, transposed
from zoo.hf._layered import LINEAR, Hybrid
from zoo.hf._layers import expect
from zoo.hf._rope import WITH_LENGTH
from zoo.mixers import Mixer
from zoo.mixers.rg_lru import RGLRU
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

ATTENTION, RECURRENT = "attention", "recurrent"


class RecurrentGemma(Hybrid):
    """Real-gated linear recurrent units in most layers, attention with a window in the others. Botev et al. 2024,
    arXiv:2404.07839."""

    model_types: ClassVar[tuple[str, ...]] = ("recurrent_gemma",)
    final_norm_name: ClassVar[str] = "model.final_norm"
    has_head_dim: ClassVar[bool] = False
    partial_rotary: ClassVar[bool] = True
    model_keys: ClassVar[Keys] = {**Hybrid.model_keys, "logits_soft_cap": "final_softcap"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "rmsnorm", "unit_offset": True}
    norm_names: ClassVar[Mapping[str, str]] = {
        "mixer_residual.norm_in": "temporal_pre_norm",
        "ffn_residual.norm_in": "channel_pre_norm",
    }
    mixer_name: ClassVar[str] = "temporal_block"
    ffn_name: ClassVar[str] = "mlp_block"
    mixer_keys: ClassVar[Keys] = {
        **Hybrid.mixer_keys,
        "attention_bias": Key("bias", lambda biased: [*QKV, "o"] if biased else ["o"], lambda names: "q" in names),
        "attention_window_size": "window",
    }
    activation_key: ClassVar[str] = "hidden_activation"
    ffn_keys: ClassVar[Keys] = {
        "intermediate_size": Key("d_ff", lambda width: width // 2, lambda width: 2 * width, resolved="width")
    }
    ffn_fixed: ClassVar[SpecJson] = {"bias": True}
    state_class: ClassVar[type[Mixer]] = RGLRU
    state_fixed: ClassVar[SpecJson] = {"kind": "rg_lru"}
    state_keys: ClassVar[Keys] = {
        "num_attention_heads": "heads",
        "lru_width": "features",
        "conv1d_width": "conv",
    }

    def spec(self, config: Config) -> SpecJson:
        # Initial values, and a size that follows from others.
        config.ignore("w_init_variance_scale", "final_w_init_variance_scale", "head_dim")
        # transformers rounds the factor to bfloat16, whatever the model's dtype.
        scale = torch.tensor(config["hidden_size"] ** 0.5, dtype=torch.bfloat16).item()
        return {**super().spec(config), "embedding_scale": scale}

    def head_dim(self, config: Config) -> int:
        return int(config["hidden_size"] // config["num_attention_heads"])

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        kinds, layers = config["block_types"], config["num_hidden_layers"]
        return [[LINEAR] * (kind == RECURRENT) for kind in (kinds * layers)[:layers]]

    def state(self, config: Config) -> SpecJson:
        config.only(self.activation_key, "gelu_pytorch_tanh")
        return {name: value for name, value in super().state(config).items() if name != "activation"}

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments = super().config(spec)
        kinds = [RECURRENT if kind == LINEAR else ATTENTION for kind in arguments.pop("layer_types")]
        return {**arguments, "block_types": kinds}

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        scaling = getattr(getattr(layer.mixer, "position", None), "scaling", None)
        if scaling is not None and scaling.kind in WITH_LENGTH:
            reason = f"the config class of RecurrentGemma, which has no length, cannot hold {scaling.kind}"
            raise UnsupportedError("mixer.position.scaling", reason)
        return super().position_config(layer)

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        if not isinstance(layer.mixer, RGLRU):
            yield from super().mixer_weights(layer, ours, theirs)
            return
        for part, name in (("gate", "linear_y"), ("v", "linear_x"), ("o", "linear_out")):
            yield from both(f"{ours}.{part}", f"{theirs}.{name}", bias=True)
        mixer, features = layer.mixer, expect(layer.mixer.features, int, "mixer.features")
        yield from convolution(f"{ours}.conv", f"{theirs}.conv_1d", features, mixer.conv, bias=True)
        yield same(f"{ours}.rate", f"{theirs}.rg_lru.recurrent_param")
        for part, name in (("recur", "recurrent_gate"), ("admit", "input_gate")):
            yield transposed(same(f"{ours}.{part}.weight", f"{theirs}.rg_lru.{name}_weight"))
            blocks = mixer.heads, features // mixer.heads
            yield reshaped(f"{ours}.{part}.bias", f"{theirs}.rg_lru.{name}_bias", (features,), blocks)
