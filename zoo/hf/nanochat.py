"""nanochat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._common import attention
from zoo.hf._keys import BIAS, Keys
from zoo.hf._llama_like import LlamaLike
from zoo.hf._pairs import Pair, Tensors, same
from zoo.settings.edits import SpecJson


class NanoChat(LlamaLike):
    """Llama with norms that have no gains, also behind the embedding and behind RoPE, squared ReLU and capped logits.
    Karpathy 2025, https://github.com/karpathy/nanochat."""

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
            for kind in ("weight", "bias") if part in mixer.bias else ("weight",):
                yield same(f"{ours}.{part}.{kind}", f"{theirs}.{part}_proj.{kind}")


def _halves_swapped(ours: str, theirs: str, heads: int) -> Pair:
    """Rows of queries or keys: it turns them the other way round, as if the halves of a head were exchanged."""

    def swap(x: Tensors) -> Tensors:
        return [x[0].unflatten(0, (heads, 2, -1)).flip(1).flatten(0, 2)]

    return Pair((ours,), (theirs,), swap, swap)
