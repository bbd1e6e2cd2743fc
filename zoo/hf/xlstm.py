"""xLSTM 7B."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._config import Config, ConfigJson, Keys, read
from zoo.hf._family import Pair, both, fused, same
from zoo.hf._keyed import Keyed
from zoo.hf._layers import dense, expect
from zoo.mixers import Mixer
from zoo.mixers.mlstm import MLSTM
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

UNREAD = (
    "bias",
    "igate_bias_init_range",
    "slstm_at",
    "slstm_block",
    "mlstm_block",
    "vocab_dim",
    "head_dim",
    "num_blocks",
)
"""Keys of published configs that transformers does not read, or that repeat others."""


class XLSTM(Keyed):
    """mLSTM and a dense FFN in every layer. Beck et al. 2025, arXiv:2503.13427."""

    model_types: ClassVar[tuple[str, ...]] = ("xlstm",)
    model_keys: ClassVar[Keys] = {
        "vocab_size": "vocab_size",
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layers",
        "output_logit_soft_cap": "final_softcap",
    }
    model_fixed: ClassVar[SpecJson] = {"tie_embeddings": False}
    norm_keys: ClassVar[Keys] = {"norm_eps": "eps"}
    mixer_class: ClassVar[type[Mixer]] = MLSTM
    mixer_keys: ClassVar[Keys] = {"num_heads": "heads", "gate_soft_cap": "gate_cap", "chunk_size": "chunk"}
    mixer_fixed: ClassVar[SpecJson] = {"kind": "mlstm"}
    fixed_position: ClassVar[SpecJson | None] = {"kind": "nope"}
    table_name: ClassVar[str] = "backbone.embeddings"
    final_norm_name: ClassVar[str] = "backbone.out_norm"
    layers_name: ClassVar[str] = "backbone.blocks"
    norm_names: ClassVar[Mapping[str, str]] = {
        "mixer_residual.norm_in": "norm_mlstm",
        "ffn_residual.norm_in": "norm_ffn",
    }
    mixer_name: ClassVar[str] = "mlstm_layer"
    ffn_name: ClassVar[str] = "ffn"
    ffn_names: ClassVar[Mapping[str, str]] = {"gate": "proj_up_gate", "up": "proj_up", "down": "proj_down"}

    def spec(self, config: Config) -> SpecJson:
        # Kernels and precision, keys that repeat others, and switches without effect.
        config.ignore("chunkwise_kernel", "sequence_kernel", "step_kernel", "mode", "return_last_states", "eps")
        config.ignore("autocast_kernel_dtype", "inference_state_dtype", "max_inference_chunksize", "embedding_dim")
        config.ignore("norm_reduction_force_float32", "add_out_norm", "tie_word_embeddings", *UNREAD)
        config.only("use_bias", False)
        config.only("weight_mode", "single")
        return super().spec(config)

    def mixer(self, config: Config) -> SpecJson:
        heads, width = config["num_heads"], config["hidden_size"]
        return {
            **self.mixer_fixed,
            **read(self.mixer_keys, config),
            "head_dim": int(width * config["qk_dim_factor"]) // heads,
            "v_dim": int(width * config["v_dim_factor"]) // heads,
            "head_norm": {"kind": "layernorm", "bias": False, "eps": config["norm_eps"]},
        }

    def ffn(self, config: Config) -> SpecJson:
        multiple, width = config["ffn_round_up_to_multiple_of"], config["hidden_size"] * config["ffn_proj_factor"]
        return {"kind": "swiglu", "d_ff": int((width + multiple - 1) // multiple * multiple)}

    def config(self, spec: ModelSpec) -> ConfigJson:
        mixer = expect(spec.layers[0].mixer, MLSTM, "mixer")
        widths = {
            "qk_dim_factor": mixer.heads * mixer.key_features,
            "v_dim_factor": mixer.heads * mixer.value_features,
            "ffn_proj_factor": dense(spec.layers[0]).width,
        }
        factors = {key: _factor(width, spec.d_model) for key, width in widths.items()}
        return {**super().config(spec), **factors, "ffn_round_up_to_multiple_of": 1}

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        return {}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        mixer = expect(layer.mixer, MLSTM, "mixer")
        for part, name in (("q", "q"), ("k", "k"), ("v", "v"), ("gate", "ogate_preact"), ("o", "out_proj")):
            yield same(f"{ours}.{part}.weight", f"{theirs}.{name}.weight")
        for part, name in (("admit", "igate_preact"), ("forget", "fgate_preact")):
            yield from both(f"{ours}.{part}", f"{theirs}.{name}", bias=True)
        gains = [f"{ours}.head_norm.norms.{head}.gain" for head in range(mixer.heads)]
        yield fused(gains, f"{theirs}.multihead_norm.weight", [mixer.value_features] * mixer.heads)


def _factor(width: int, d_model: int) -> float:
    """A factor with int(d_model · factor) = width, despite rounding."""
    exact = width / d_model
    return exact if int(d_model * exact) == width else (width + 0.5) / d_model
