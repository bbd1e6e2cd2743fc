"""Families whose layers differ by named edits of a base block, and DeepSeek's and Qwen's experts in some layers, for
any attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from zoo.errors import UnsupportedError
from zoo.ffns._moe import MoE
from zoo.ffns.deepseek_moe import DeepSeekMoE
from zoo.ffns.topk_moe import TopKMoE
from zoo.hf._config import WIDTH, Config, ConfigJson, Key, Keys, either, read, write
from zoo.hf._family import Pair, Tensors
from zoo.hf._ffn import EXPERT_SIZES, PARTS, SHARED, SHARED_WIDTH, balance_loss, plain_activation
from zoo.hf._keyed import LlamaLike
from zoo.hf._layers import FULL, layered, types_of
from zoo.mixers import Mixer
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

EXPERTS, LINEAR = "experts", "linear_attention"
DENSE, SPARSE = "dense", "sparse"


class Layered(LlamaLike):
    """Llama's block, edited layer by layer. Families define the edits of each layer."""

    preference: ClassVar[int] = 2

    def spec(self, config: Config) -> SpecJson:
        kinds = zip(self.mixer_kinds(config), self.sparse(config), strict=True)
        names = [[*mixer, *[EXPERTS] * sparse] for mixer, sparse in kinds]
        return {**super().spec(config), **layered(names, self.edits(config))}

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        """Names of the `edits` of each layer's mixer."""
        return [[] for _ in range(config["num_hidden_layers"])]

    def sparse(self, config: Config) -> list[bool]:
        """For each layer, whether it has experts, by the edit `EXPERTS`."""
        return [False] * int(config["num_hidden_layers"])

    def edits(self, config: Config) -> dict[str, SpecJson]:
        """Edits of the base block, keyed by name."""
        return {EXPERTS: {"ffn": self.experts(config)}} if self.expert_keys else {}

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments = super().config(spec)
        for layer in spec.layers:
            arguments |= self.ffn_config(layer)
        return {**arguments, **self.sparse_config([isinstance(layer.ffn, self.experts_class) for layer in spec.layers])}

    def sparse_config(self, sparse: list[bool]) -> ConfigJson:
        """Arguments of the config class that say which layers have experts."""
        return {}


class Listed(Layered):
    """Family whose configs list the layers with experts."""

    def sparse(self, config: Config) -> list[bool]:
        return [kind == SPARSE for kind in config["mlp_layer_types"]]

    def sparse_config(self, sparse: list[bool]) -> ConfigJson:
        return {"mlp_layer_types": [SPARSE if there else DENSE for there in sparse]}


class NoExperts(Layered):
    """Mixin that removes the experts of the families after it in the bases."""

    experts_class: ClassVar[type[MoE] | tuple[()]] = ()
    expert_keys: ClassVar[Keys] = {}

    def sparse(self, config: Config) -> list[bool]:
        return Layered.sparse(self, config)

    def sparse_config(self, sparse: list[bool]) -> ConfigJson:
        return {}


class ExpertsEverywhere(Layered):
    """Mixin for experts in every layer, which configs do not state."""

    def sparse(self, config: Config) -> list[bool]:
        return [True] * int(config["num_hidden_layers"])

    def sparse_config(self, sparse: list[bool]) -> ConfigJson:
        if not all(sparse):
            raise UnsupportedError("ffn", "its counterpart has experts in every layer")
        return {}


class Hybrid(Layered):
    """Layers with a state among layers of attention, as listed in `layer_types`."""

    state_class: ClassVar[type[Mixer]]
    state_keys: ClassVar[Keys]
    state_fixed: ClassVar[SpecJson]

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        return [[LINEAR] * (kind == LINEAR) for kind in types_of(config, LINEAR)]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        return {**super().edits(config), LINEAR: {"mixer": self.state(config)}}

    def state(self, config: Config) -> SpecJson:
        """The mixer of layers with a state."""
        act = plain_activation(config, self.activation_key)
        return {**self.state_fixed, **read(self.state_keys, config), "activation": act}

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments = super().config(spec)
        for layer in spec.layers:
            if isinstance(layer.mixer, self.state_class):
                arguments |= self.state_config(layer.mixer)
        types = [FULL if isinstance(layer.mixer, self.mixer_class) else LINEAR for layer in spec.layers]
        return {**arguments, "layer_types": types}

    def state_config(self, mixer: Mixer) -> ConfigJson:
        """Arguments of the config class that follow from a layer with a state."""
        return write(self.state_keys, mixer, "mixer")


class FineExperts(Layered):
    """Llama's block with dense FFNs in the first layers and DeepSeek-V3's mixture of experts in the others.

    transformers' models have no multi-token prediction, even if the config describes it.
    """

    scoring: ClassVar[tuple[str, ...]] = ("sigmoid",)
    """Values of `scoring_func` that mean sigmoid scores; transformers does not read the key."""
    dense_key: ClassVar[str] = "first_k_dense_replace"
    """Key of the number of dense layers."""
    keeps_empty: ClassVar[bool] = True
    """Whether transformers has empty matrices, of width 0, if no expert is shared."""
    experts_class: ClassVar[type[MoE] | tuple[()]] = DeepSeekMoE
    # Without balance losses, which transformers does not have.
    expert_fixed: ClassVar[SpecJson] = {"kind": "deepseek_moe", "score": "sigmoid", "balance_loss": 0.0}
    expert_keys: ClassVar[Keys] = {
        "moe_intermediate_size": WIDTH,
        "n_routed_experts": "experts",
        "num_experts_per_tok": "top_k",
        "n_shared_experts": "shared_experts",
        "routed_scaling_factor": Key("scale", float),
        "n_group": "groups",
        "topk_group": "top_groups",
        "norm_topk_prob": "normalise",
    }

    def spec(self, config: Config) -> SpecJson:
        # Losses and outputs of training, expert parallelism, and multi-token prediction.
        config.ignore("aux_loss_alpha", "seq_aux", "ep_size", "output_router_logits")
        config.ignore("num_nextn_predict_layers", "num_mtp_layers")
        return super().spec(config)

    def sparse(self, config: Config) -> list[bool]:
        config.only("moe_layer_freq", 1)
        dense = config[self.dense_key] or 0
        return [i >= dense for i in range(config["num_hidden_layers"])]

    def experts(self, config: Config) -> SpecJson:
        self.check_routing(config)
        experts = super().experts(config)
        if experts["shared_experts"] == 0 and config.get("mlp_bias"):
            reason = "must be positive with mlp_bias: even without shared experts, transformers adds their bias"
            raise UnsupportedError("n_shared_experts", reason)
        return experts

    def check_routing(self, config: Config) -> None:
        """Raise UnsupportedError for another routing method."""
        config.only("scoring_func", *self.scoring)
        config.only("topk_method", "noaux_tc")

    def sparse_config(self, sparse: list[bool]) -> ConfigJson:
        return {self.dense_key: sparse.index(True) if any(sparse) else len(sparse)}

    def expert_weights(self, moe: MoE, ours: str, theirs: str) -> Iterator[Pair]:
        router, *others = super().expert_weights(moe, ours, theirs)
        if moe.shared_experts == 0 and self.keeps_empty:
            empty = [f"{theirs}.{self.shared_name}.{part}_proj.weight" for part in PARTS]
            router = _with_empty(router.ours[0], router.theirs[0], empty)
        yield router
        yield from others


class ListedExperts(Listed, FineExperts):
    """`FineExperts` in the layers that `mlp_layer_types` lists."""

    def sparse(self, config: Config) -> list[bool]:
        config.ignore("first_k_dense_replace")  # it only sets the default of mlp_layer_types
        return super().sparse(config)


def _with_empty(ours: str, theirs: str, empty: Sequence[str]) -> Pair:
    """A matrix of both models, with gate, up and down matrices of width 0 that only transformers has."""

    def write(x: Tensors) -> Tensors:
        none = x[0].new_zeros(0, x[0].shape[1])
        return [x[0], none, none, none.T]

    return Pair((ours,), (theirs, *empty), lambda x: x[:1], write)


class QwenExperts(Layered):
    """Llama's block with experts in some layers."""

    experts_class: ClassVar[type[MoE] | tuple[()]] = TopKMoE
    expert_fixed: ClassVar[SpecJson] = {"kind": "topk_moe"}
    expert_keys: ClassVar[Keys] = {
        **EXPERT_SIZES,
        "norm_topk_prob": either("softmax_over", "chosen", "all"),
    }

    def sparse(self, config: Config) -> list[bool]:
        dense, every = config.get("mlp_only_layers") or (), config["decoder_sparse_step"]
        any_at_all, layers = config["num_experts"] > 0, config["num_hidden_layers"]
        return [any_at_all and i not in dense and (i + 1) % every == 0 for i in range(layers)]

    def experts(self, config: Config) -> SpecJson:
        experts = super().experts(config)
        # In a model of dense layers only, num_experts may be 0.
        return {**experts, "experts": experts["experts"] or experts["top_k"], "balance_loss": balance_loss(config)}

    def sparse_config(self, sparse: list[bool]) -> ConfigJson:
        return {"mlp_only_layers": [i for i, there in enumerate(sparse) if not there], "decoder_sparse_step": 1}


class QwenSharedExperts(QwenExperts):
    """`QwenExperts` with a gated shared expert."""

    expert_fixed: ClassVar[SpecJson] = {"kind": "topk_moe", "shared_experts": 1, "shared_gate": True}
    expert_keys: ClassVar[Keys] = {
        **QwenExperts.expert_keys,
        SHARED: SHARED_WIDTH,
    }
    shared_name: ClassVar[str] = "shared_expert"
