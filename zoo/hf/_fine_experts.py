"""DeepSeek's experts after some dense layers, whatever the layers attend with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from zoo.errors import UnsupportedError
from zoo.ffns._moe import MoE
from zoo.ffns.deepseek_moe import DeepSeekMoE
from zoo.hf._common import expect
from zoo.hf._config import Config, ConfigJson
from zoo.hf._experts import PARTS, gated_experts
from zoo.hf._keys import WIDTH, Key, Keys
from zoo.hf._layered import Layered
from zoo.hf._pairs import Pair, Tensors, both, same
from zoo.settings.edits import SpecJson

DENSE, SPARSE = "dense", "sparse"


class FineExperts(Layered):
    """Llama's block with dense layers first and DeepSeek-V3's mixture of experts in the others.

    transformers' models have no multi-token prediction, whatever the config says of it.
    """

    scoring: ClassVar[tuple[str, ...]] = ("sigmoid",)
    """Values of `scoring_func`, which transformers does not read, that name sigmoid scores."""
    router_name: ClassVar[str] = "gate"
    balance_name: ClassVar[str] = "gate.e_score_correction_bias"
    shared_name: ClassVar[str] = "shared_experts"
    """Names of an expert layer's router, of the bias that balances, and of the shared experts."""
    keeps_empty: ClassVar[bool] = True
    """Whether transformers has matrices of no features where no expert is shared."""
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
        # What training adds, how work is divided, and modules that look ahead.
        config.ignore("aux_loss_alpha", "seq_aux", "ep_size", "output_router_logits")
        config.ignore("num_nextn_predict_layers", "num_mtp_layers")
        return super().spec(config)

    def sparse(self, config: Config) -> list[bool]:
        config.only("moe_layer_freq", 1)
        dense = config["first_k_dense_replace"] or 0
        return [i >= dense for i in range(config["num_hidden_layers"])]

    def experts(self, config: Config) -> SpecJson:
        self.check_routing(config)
        experts = super().experts(config)
        if experts["shared_experts"] == 0 and config.get("mlp_bias"):
            raise UnsupportedError("n_shared_experts", "no expert is shared, but transformers adds a bias of theirs")
        return experts

    def check_routing(self, config: Config) -> None:
        """Raise UnsupportedError for experts that are chosen in another way."""
        config.only("scoring_func", *self.scoring)
        config.only("topk_method", "noaux_tc")

    def sparse_config(self, sparse: list[bool]) -> ConfigJson:
        return {"first_k_dense_replace": sparse.index(True) if any(sparse) else len(sparse)}

    def expert_weights(self, moe: MoE, ours: str, theirs: str) -> Iterator[Pair]:
        fine = expect(moe, DeepSeekMoE, "ffn")
        shared, router = [f"{theirs}.{self.shared_name}.{name}_proj" for name in PARTS], f"{theirs}.{self.router_name}"
        if fine.shared_experts == 0 and self.keeps_empty:
            yield _with_empty(f"{ours}.router.weight", f"{router}.weight", [f"{name}.weight" for name in shared])
        else:
            yield same(f"{ours}.router.weight", f"{router}.weight")
            for part, name in zip(PARTS, shared, strict=True) if fine.shared_experts else ():
                yield from both(f"{ours}.shared.{part}", name, bias=fine.shared_bias)
        if fine.bias_rate is not None:
            yield same(f"{ours}.router.selection_bias", f"{theirs}.{self.balance_name}")
        yield from gated_experts(f"{ours}.experts", f"{theirs}.experts", fine.width, fine.experts)


class ListedExperts(FineExperts):
    """With a list of which layers have experts."""

    def sparse(self, config: Config) -> list[bool]:
        config.ignore("first_k_dense_replace")  # it says what mlp_layer_types are by default
        return [kind == SPARSE for kind in config["mlp_layer_types"]]

    def sparse_config(self, sparse: list[bool]) -> ConfigJson:
        return {"mlp_layer_types": [SPARSE if there else DENSE for there in sparse]}


def _with_empty(ours: str, theirs: str, empty: Sequence[str]) -> Pair:
    """A matrix of ours is one of theirs, which has gate, up and down matrices of no features beside it."""

    def write(x: Tensors) -> Tensors:
        none = x[0].new_zeros(0, x[0].shape[1])
        return [x[0], none, none, none.T]

    return Pair((ours,), (theirs, *empty), lambda x: x[:1], write)
