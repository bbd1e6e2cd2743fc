"""Our weights under the names of x-transformers."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import Tensor

import zoo

ATTENTION = {
    "k.weight": "to_k.weight",
    "v.weight": "to_v.weight",
    "sinks": "attend.head_attn_sink",
    "forget.project.weight": "data_dependent_alibi.to_forget_gates.0.weight",
    "forget.project.bias": "data_dependent_alibi.to_forget_gates.0.bias",
}
OUTER = {
    "embedding.weight": "token_emb.emb.weight",
    "embedding_norm.gain": "post_emb_norm.gamma",
    "head.weight": "to_logits.weight",
    "project_in.weight": "project_emb.weight",
}
NORMS = {"norm_in": 0, "norm_out": 1, "norm_after": 2}
"""Their place in the list of a layer's norms."""


def copied(ours: zoo.Decoder) -> dict[str, Tensor]:
    """State of a model of x-transformers that computes the same. Its attention and feed-forward layers alternate."""
    given = {name: parameter.detach() for name, parameter in ours.named_parameters()}
    state: dict[str, Tensor] = {}
    d_model = ours.spec.d_model
    for layer in range(len(ours.blocks)):
        own = {name.removeprefix(start): x for name, x in given.items() if name.startswith(start := f"blocks.{layer}.")}
        for index, branch in ((2 * layer, "mixer"), (2 * layer + 1, "ffn")):
            at = f"attn_layers.layers.{index}"
            for name, place in NORMS.items():
                state |= _norm(f"{at}.0.{place}", own, f"{branch}_residual.{name}", d_model)
            parts = {name.removeprefix(f"{branch}."): x for name, x in own.items() if name.startswith(f"{branch}.")}
            found = _attention(parts, ours) if branch == "mixer" else _feed_forward(parts)
            state |= {f"{at}.1.{name}": x for name, x in found}
    state |= _norm("attn_layers.final_norm", given, "norm", d_model)
    state |= {theirs: given[name] for name, theirs in OUTER.items() if name in given}
    if "project_in.weight" in given:  # they have none before the head
        state["to_logits.weight"] = given["head.weight"] @ given["project_out.weight"]
        state["project_emb.bias"] = given["project_in.weight"].new_zeros(len(given["project_in.weight"]))
    if "positions.0.weight" in given:  # T5's table, which is multiplied by √d there
        state["attn_layers.rel_pos.relative_attention_bias.weight"] = (
            given["positions.0.weight"] * ours.blocks[0].mixer.head_dim ** -0.5
        )
    if "positions.0.table.weight" in given:  # divided by √D there
        table = given["positions.0.table.weight"]
        state["pos_emb.emb.weight"] = table * table.shape[1] ** 0.5
    return state


def _norm(theirs: str, given: dict[str, Tensor], name: str, d_model: int) -> dict[str, Tensor]:
    """RMSNorm and ScaleNorm have g, which ScaleNorm multiplies by √D; the others γ and β; DyT has α, a scalar."""
    found = {}
    if f"{name}.alpha" in given:
        found["pre_tanh_scale"] = given[f"{name}.alpha"][0]
    if f"{name}.bias" in given:
        found["beta"] = given[f"{name}.bias"]
    if f"{name}.gain" in given:
        gain = given[f"{name}.gain"]
        found |= dict.fromkeys(("g", "gamma"), gain if len(gain) > 1 else gain / d_model**0.5)
    return {f"{theirs}.{part}": x for part, x in found.items()}


def _attention(given: dict[str, Tensor], ours: zoo.Decoder) -> Iterator[tuple[str, Tensor]]:
    order = _order_of_heads(ours)
    for name, x in given.items():
        if name == "q.weight":
            yield "to_q.weight", x.unflatten(0, (len(order), -1))[order].flatten(0, 1)
        elif name == "o.weight":
            yield "to_out.weight", x.unflatten(1, (len(order), -1))[:, order].flatten(1)
        elif name in ATTENTION:
            yield ATTENTION[name], x
        elif name.startswith("gate.project."):
            biased = "gate.project.bias" in given
            yield name.replace("gate.project", "to_v_head_gate" if biased else "to_v_gate"), x
        elif found := re.fullmatch(r"([qk])_norm.norms.0.gain", name):
            gains = [each for other, each in given.items() if other.startswith(f"{found[1]}_norm.")]
            yield f"{found[1]}_rmsnorm.gamma", torch.stack(gains)[:, None] - 1
        elif name == "v_norm.gain":
            yield "value_rmsnorm.gamma", x.expand(len(order), 1, -1) - 1


def _feed_forward(given: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    gated = "gate.weight" in given
    joined = [
        torch.cat([given[f"{part}.{kind}"] for part in (("up", "gate") if gated else ("up",))])
        for kind in _kinds(given)
    ]
    for kind, x in zip(_kinds(given), joined, strict=True):
        yield f"ff.0.{'proj' if gated else 0}.{kind}", x
        yield f"ff.2.{kind}", given[f"down.{kind}"]
    if gated and "up.bias" not in given:  # their gated layer has a bias, whatever its settings
        yield "ff.0.proj.bias", joined[0].new_zeros(len(joined[0]))


def _kinds(given: dict[str, Tensor]) -> list[str]:
    return [kind for kind in ("weight", "bias") if f"up.{kind}" in given]


def _order_of_heads(ours: zoo.Decoder) -> list[int]:
    """Query heads there are numbered so that head i reads the keys of head i modulo the number of kv heads."""
    mixer = ours.blocks[0].mixer
    groups = mixer.heads // mixer.kv_heads
    return [kv * groups + i for i in range(groups) for kv in range(mixer.kv_heads)]
