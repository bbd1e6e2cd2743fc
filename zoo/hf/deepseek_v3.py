"""DeepSeek V3."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.ffns.deepseek_moe import DeepSeekMoE
from zoo.hf._common import expect
from zoo.hf._config import Config
from zoo.hf._experts import expert_activation, expert_names, gated_experts
from zoo.hf._llama_like import LlamaLike
from zoo.hf._pairs import Pair, Tensors, both, fused, same
from zoo.hf._rope import rope, rope_config
from zoo.mixers.mla import MLA
from zoo.spec import ModelSpec

DENSE = "dense"
PARTS = ("gate", "up", "down")


class DeepSeekV3(LlamaLike):
    """Latent attention, and experts after some dense layers. DeepSeek-AI 2024, arXiv:2412.19437.

    transformers' model has no multi-token prediction, whatever the config says of it.
    """

    model_types: ClassVar[tuple[str, ...]] = ("deepseek_v3",)

    def spec(self, config: Config) -> dict[str, Any]:
        # What training adds, how work is divided, and sizes that follow from others.
        config.ignore("aux_loss_alpha", "seq_aux", "ep_size", "output_router_logits", "qk_head_dim")
        config.ignore("num_nextn_predict_layers", "num_mtp_layers")
        config.only("moe_layer_freq", 1)
        spec, layers = super().spec(config), config["num_hidden_layers"]
        dense, experts = min(config["first_k_dense_replace"] or 0, layers), self.experts(config)
        if dense == layers:
            return spec
        spec["block"]["ffn"], first = experts, spec["block"]["ffn"]
        return {**spec, "first": [DENSE] * dense, "blocks": {DENSE: {"ffn": first}} if dense else {}}

    def mixer(self, config: Config) -> dict[str, Any]:
        heads = config["num_attention_heads"]
        config.only("num_key_value_heads", heads)
        return {
            "kind": "mla",
            "heads": heads,
            "q_rank": config["q_lora_rank"],
            "kv_rank": config["kv_lora_rank"],
            "nope_dim": config["qk_nope_head_dim"],
            "rope_dim": config["qk_rope_head_dim"],
            "v_dim": config["v_head_dim"],
            "latent_norm": {"kind": "rmsnorm", "eps": 1e-6},
            "bias": config["attention_bias"],
            "dropout": float(config["attention_dropout"] or 0.0),
            "position": self.position(config),
        }

    def head_dim(self, config: Config) -> int:
        """Features that are turned. A config has them under this name too."""
        return int(config.only("head_dim", config["qk_rope_head_dim"], None) or config["qk_rope_head_dim"])

    def position(self, config: Config) -> dict[str, Any]:
        position = rope(config, self.head_dim(config), layout="interleaved" if self.interleaved(config) else "half")
        scaling = position["scaling"]
        if scaling and scaling.get("mscale_all_dim"):
            scaling["scale_scores"] = True
        return position

    def interleaved(self, config: Config) -> bool:
        return bool(config.get("rope_interleave", True))

    def experts(self, config: Config) -> dict[str, Any]:
        """The FFN of layers with experts."""
        config.only("scoring_func", "sigmoid")
        config.only("topk_method", "noaux_tc")
        return self.shared_and_fine(config) | {
            "score": "sigmoid",
            "groups": config["n_group"],
            "top_groups": config["topk_group"],
            "normalise": config["norm_topk_prob"],
        }

    def shared_and_fine(self, config: Config) -> dict[str, Any]:
        """What V2 and V3 have in common. Without balance losses, which transformers does not have."""
        kind, shared = super().ffn(config), config["n_shared_experts"]
        if shared == 0 and config.get("mlp_bias"):
            raise UnsupportedError("n_shared_experts", "no expert is shared, but transformers adds a bias of theirs")
        return {
            "kind": "deepseek_moe",
            "activation": expert_activation(kind["kind"], kind.get("approximate", "none")),
            "d_ff": config["moe_intermediate_size"],
            "experts": config["n_routed_experts"],
            "top_k": config["num_experts_per_tok"],
            "shared_experts": shared,
            "scale": float(config["routed_scaling_factor"]),
            "balance_loss": 0.0,
        }

    def config(self, spec: ModelSpec) -> dict[str, Any]:
        dense = next((i for i, layer in enumerate(spec.layers) if isinstance(layer.ffn, DeepSeekMoE)), spec.n_layers)
        first = spec.layers[0]
        width = {} if dense == 0 else super().ffn_config(first)
        return {**super().config(spec), "first_k_dense_replace": dense, **width}

    def typical(self, spec: ModelSpec) -> BlockSpec:
        return spec.layers[-1]

    def block_config(self, layer: BlockSpec) -> dict[str, Any]:
        mixer = expect(layer.mixer, MLA, "mixer")
        return {
            **self.norm_config(layer),
            "num_attention_heads": mixer.heads,
            "num_key_value_heads": mixer.heads,
            "q_lora_rank": mixer.q_rank,
            "kv_lora_rank": mixer.kv_rank,
            "qk_nope_head_dim": mixer.nope_dim,
            "qk_rope_head_dim": mixer.rope_dim,
            "v_head_dim": mixer.v_dim,
            "attention_bias": mixer.bias,
            "attention_dropout": mixer.dropout,
            **self.ffn_config(layer),
            **self.position_config(layer),
        }

    def position_config(self, layer: BlockSpec) -> dict[str, Any]:
        position = expect(layer.mixer, MLA, "mixer").position
        return {**rope_config(position), "rope_interleave": getattr(position, "layout", "") == "interleaved"}

    def ffn_config(self, layer: BlockSpec) -> dict[str, Any]:
        moe = layer.ffn
        if not isinstance(moe, DeepSeekMoE):
            return super().ffn_config(layer)
        names = expert_names()
        if moe.activation not in names:
            raise UnsupportedError("ffn.activation", f"{moe.activation} has no counterpart")
        return {
            "hidden_act": names[moe.activation],
            "moe_intermediate_size": moe.width,
            "n_routed_experts": moe.experts,
            "num_experts_per_tok": moe.top_k,
            "n_shared_experts": moe.shared_experts,
            "routed_scaling_factor": moe.scale,
            **self.grouping(moe),
        }

    def grouping(self, moe: DeepSeekMoE) -> dict[str, Any]:
        return {"n_group": moe.groups, "topk_group": moe.top_groups, "norm_topk_prob": moe.normalise}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        mixer = expect(layer.mixer, MLA, "mixer")
        if mixer.q_rank is None:
            yield same(f"{ours}.q.weight", f"{theirs}.q_proj.weight")
        else:
            yield from both(f"{ours}.q_down", f"{theirs}.q_a_proj", bias=mixer.bias)
            yield same(f"{ours}.q_norm.gain", f"{theirs}.q_a_layernorm.weight")
            yield same(f"{ours}.q.weight", f"{theirs}.q_b_proj.weight")
        yield from both(f"{ours}.kv_down", f"{theirs}.kv_a_proj_with_mqa", bias=mixer.bias)
        yield same(f"{ours}.kv_norm.gain", f"{theirs}.kv_a_layernorm.weight")
        sizes = [mixer.nope_dim, mixer.value_features]
        yield fused([f"{ours}.k.weight", f"{ours}.v.weight"], f"{theirs}.kv_b_proj.weight", sizes, groups=mixer.heads)
        yield from both(f"{ours}.o", f"{theirs}.o_proj", bias=mixer.bias)

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        moe = layer.ffn
        if not isinstance(moe, DeepSeekMoE):
            yield from super().ffn_weights(layer, ours, theirs)
            return
        shared = [f"{theirs}.shared_experts.{name}_proj" for name in PARTS]
        if moe.shared_experts == 0:
            yield _with_empty(f"{ours}.router.weight", f"{theirs}.gate.weight", [f"{name}.weight" for name in shared])
        else:
            yield same(f"{ours}.router.weight", f"{theirs}.gate.weight")
            for part, name in zip(PARTS, shared, strict=True):
                yield from both(f"{ours}.shared.{part}", name, bias=moe.shared_bias)
        if moe.bias_rate is not None:
            yield same(f"{ours}.router.selection_bias", f"{theirs}.gate.e_score_correction_bias")
        yield from gated_experts(f"{ours}.experts", f"{theirs}.experts", moe.width, moe.experts)


def _with_empty(ours: str, theirs: str, empty: Sequence[str]) -> Pair:
    """A matrix of ours is one of theirs, which has gate, up and down matrices of no features beside it."""

    def write(x: Tensors) -> Tensors:
        none = x[0].new_zeros(0, x[0].shape[1])
        return [x[0], none, none, none.T]

    return Pair((ours,), (theirs, *empty), lambda x: x[:1], write)
