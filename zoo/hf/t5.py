"""T5 1.0, T5 v1.1 and mT5."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.hf._config import WIDTH, Config, ConfigJson, Keys, read, write
from zoo.hf._family import Pair, Task, same
from zoo.hf._ffn import activation, ffn
from zoo.hf._keyed import Keyed
from zoo.hf._layers import attention, dense, expect
from zoo.positions import t5
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

PROJECTIONS = ("q", "k", "v", "o")


class T5(Keyed):
    """T5: Raffel et al. 2019, arXiv:1910.10683; mT5: Xue et al. 2020, arXiv:2010.11934.

    T5 1.0 ties the head to the token table and divides the head's input by √d_model. v1.1 and mT5 gate the FFN and have
    an untied head, whose input is not scaled. All configs claim a tied head: only the weights tell.
    Dropout after the final norm has no counterpart; it does nothing outside training.
    """

    model_types: ClassVar[tuple[str, ...]] = ("t5", "mt5")
    task: ClassVar[Task] = "sequence to sequence"
    says_tied: ClassVar[bool] = True

    model_keys: ClassVar[Keys] = {
        "vocab_size": "vocab_size",
        "d_model": "d_model",
        "num_decoder_layers": "n_layers",
        "dropout_rate": "embedding_dropout",
    }
    block_keys: ClassVar[Keys] = {"dropout_rate": "dropout"}
    norm_keys: ClassVar[Keys] = {"layer_norm_epsilon": "eps"}
    mixer_keys: ClassVar[Keys] = {"num_heads": "heads", "d_kv": "head_dim", "dropout_rate": "dropout"}
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention", "scale": 1.0}
    position_keys: ClassVar[Keys] = {
        "relative_attention_num_buckets": "buckets",
        "relative_attention_max_distance": "max_distance",
    }
    ffn_keys: ClassVar[Keys] = {"d_ff": WIDTH, "dropout_rate": "dropout"}

    def spec(self, config: Config) -> SpecJson:
        config.only("is_encoder_decoder", True)
        config.ignore("is_decoder", "initializer_factor", "classifier_dropout", "feed_forward_proj")
        config.ignore("decoder_start_token_id", "n_positions", "output_past")  # relative positions have no maximum
        scaled = config["model_type"] == "t5" and config["scale_decoder_outputs"]
        return {
            **super().spec(config),
            "encoder": {"n_layers": config["num_layers"]},
            "tie_embeddings": config["tie_word_embeddings"],
            "logit_scale": config["d_model"] ** -0.5 if scaled else 1.0,
        }

    def block(self, config: Config) -> SpecJson:
        return {**super().block(config), "cross": {"scale": 1.0, "dropout": config["dropout_rate"]}}

    def position(self, config: Config) -> SpecJson:
        return {"kind": "t5", **read(self.position_keys, config)}

    def ffn(self, config: Config) -> SpecJson:
        return {**ffn(config, "dense_act_fn", gated=config["is_gated_act"]), **read(self.ffn_keys, config)}

    def config(self, spec: ModelSpec) -> ConfigJson:
        if spec.encoder is None:
            raise UnsupportedError("encoder", "T5 needs an encoder")
        tied = spec.logit_scale != 1  # the only effect of the flag
        return {**super().config(spec), "num_layers": spec.encoder.n_layers, "tie_word_embeddings": tied}

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        return write(self.position_keys, expect(attention(layer).position, t5.T5, "mixer.position"))

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        hidden = dense(layer)
        act = activation(hidden, gated=hidden.gated)
        # In a gated FFN, `gelu` would mean the tanh approximation.
        proj = f"gated-{'gelu_python' if act == 'gelu' else act}" if hidden.gated else act
        return {**write(self.ffn_keys, hidden, "ffn"), "feed_forward_proj": proj}

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield same("embedding.weight", "shared.weight")
        if not spec.tie_embeddings:
            yield same("head.weight", "lm_head.weight")
        yield from self._stack(spec, "", "decoder")
        if spec.encoder_spec is not None:
            yield from self._stack(spec.encoder_spec, "encoder.", "encoder")

    def _stack(self, spec: ModelSpec, ours: str, theirs: str) -> Iterator[Pair]:
        yield same(f"{ours}norm.gain", f"{theirs}.final_layer_norm.weight")
        bias = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        yield same(f"{ours}positions.0.weight", f"{theirs}.{bias}")
        for i, layer in enumerate(spec.layers):
            yield from self._block(layer, f"{ours}blocks.{i}", f"{theirs}.block.{i}.layer")

    def _block(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        parts = {"mixer": "SelfAttention"} | ({"cross": "EncDecAttention"} if layer.cross else {})
        for place, (own, name) in enumerate(parts.items()):
            yield same(f"{ours}.{own}_residual.norm_in.gain", f"{theirs}.{place}.layer_norm.weight")
            for projection in PROJECTIONS:
                yield same(f"{ours}.{own}.{projection}.weight", f"{theirs}.{place}.{name}.{projection}.weight")
        last = f"{theirs}.{len(parts)}"
        yield same(f"{ours}.ffn_residual.norm_in.gain", f"{last}.layer_norm.weight")
        names = {"gate": "wi_0", "up": "wi_1"} if dense(layer).gated else {"up": "wi"}
        for own, name in {**names, "down": "wo"}.items():
            yield same(f"{ours}.ffn.{own}.weight", f"{last}.DenseReluDense.{name}.weight")
