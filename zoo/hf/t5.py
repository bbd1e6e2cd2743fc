"""T5, in its first version and as v1.1, and mT5."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.errors import UnsupportedError
from zoo.hf._common import attention, dense, expect, norm_eps
from zoo.hf._config import Config, ConfigJson
from zoo.hf._family import Family, Task
from zoo.hf._ffn import activation, ffn
from zoo.hf._pairs import Pair, same
from zoo.positions import t5
from zoo.spec import ModelSpec

PROJECTIONS = ("q", "k", "v", "o")


class T5(Family):
    """Raffel et al. 2019, arXiv:1910.10683; mT5: Xue et al. 2020, arXiv:2010.11934.

    The first version ties the head to the token table and divides what it reads by √d_model. v1.1 and mT5 gate the FFN,
    have a head of their own and divide nothing. Configs say of all of them that they are tied: only the weights tell.
    Their dropout after the final norm has no counterpart; it does nothing outside training.
    """

    model_types: ClassVar[tuple[str, ...]] = ("t5", "mt5")
    task: ClassVar[Task] = "sequence to sequence"
    says_tied: ClassVar[bool] = True

    def spec(self, config: Config) -> SpecJson:
        config.only("is_encoder_decoder", True)
        config.ignore("is_decoder", "initializer_factor", "classifier_dropout", "feed_forward_proj")
        config.ignore("decoder_start_token_id", "n_positions", "output_past")  # relative positions have no end
        d_model, dropout = config["d_model"], config["dropout_rate"]
        scaled = config["model_type"] == "t5" and config["scale_decoder_outputs"]
        return {
            "vocab_size": config["vocab_size"],
            "d_model": d_model,
            "n_layers": config["num_decoder_layers"],
            "encoder": {"n_layers": config["num_layers"]},
            "tie_embeddings": config["tie_word_embeddings"],
            "logit_scale": d_model**-0.5 if scaled else 1.0,
            "embedding_dropout": dropout,
            "block": {
                "norm": {"kind": "rmsnorm", "eps": config["layer_norm_epsilon"]},
                "dropout": dropout,
                "mixer": self._mixer(config),
                "cross": {"scale": 1.0, "dropout": dropout},
                "ffn": {
                    **ffn(config, "dense_act_fn", gated=config["is_gated_act"]),
                    "d_ff": config["d_ff"],
                    "dropout": dropout,
                },
            },
        }

    def _mixer(self, config: Config) -> SpecJson:
        return {
            "kind": "attention",
            "heads": config["num_heads"],
            "head_dim": config["d_kv"],
            "scale": 1.0,
            "dropout": config["dropout_rate"],
            "position": {
                "kind": "t5",
                "buckets": config["relative_attention_num_buckets"],
                "max_distance": config["relative_attention_max_distance"],
            },
        }

    def config(self, spec: ModelSpec) -> ConfigJson:
        if spec.encoder is None:
            raise UnsupportedError("encoder", "only a model with an encoder has this counterpart")
        layer = spec.layers[0]
        mixer, hidden = attention(layer), dense(layer)
        position = expect(mixer.position, t5.T5, "mixer.position")
        act = activation(hidden, gated=hidden.gated)
        proj = f"gated-{'gelu_python' if act == 'gelu' else act}" if hidden.gated else act
        return {
            "vocab_size": spec.vocab_size,
            "d_model": spec.d_model,
            "num_layers": spec.encoder.n_layers,
            "num_decoder_layers": spec.n_layers,
            "num_heads": mixer.heads,
            "d_kv": mixer.head_dim,
            "d_ff": hidden.width,
            "feed_forward_proj": proj,  # where gated, `gelu` would mean its tanh
            "tie_word_embeddings": spec.logit_scale != 1,  # all that it decides
            "dropout_rate": layer.dropout,
            "layer_norm_epsilon": norm_eps(layer),
            "relative_attention_num_buckets": position.buckets,
            "relative_attention_max_distance": position.max_distance,
        }

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
