"""Our models against x-transformers', with our weights copied into theirs: the same logits on random tokens.

Not compared, where the formulas differ: GRU gates on residuals (theirs is torch's GRUCell, whose reset gate comes after
the matrix; before it here and in the paper, arXiv:1910.06764 eq. 6–9); sinusoidal positions (the paper's frequencies in
tensor2tensor's order); U-Net skips (concatenated there, added here); outputs without the component along the token's
own value (theirs, as of 2.31, takes it along the values of all tokens together, later ones included).
"""

from __future__ import annotations

import math
import warnings
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import zoo
from tests.zoo.peers.copied import copied
from zoo.conformance.combinations import random_model, random_tokens

with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # its use of torch.jit.script
    import x_transformers

D, HEADS, HEAD_DIM, T = 16, 4, 8, 40
BASE: dict[str, Any] = {
    "vocab_size": 29,
    "d_model": D,
    "n_layers": 2,
    "tie_embeddings": False,
    "embedding_scale": 1.0,
    "block": {
        "norm": {"kind": "rmsnorm", "eps": 1e-20},
        "mixer": {
            "kind": "attention",
            "heads": HEADS,
            "head_dim": HEAD_DIM,
            "position": {"kind": "rope", "layout": "interleaved"},
        },
        "ffn": {"kind": "gelu", "d_ff": 24},
    },
}
THEIR_BASE = {
    "dim": D,
    "depth": 2,
    "heads": HEADS,
    "attn_dim_head": HEAD_DIM,
    "attn_custom_attn_fn": partial(F.softmax, dim=-1),  # otherwise in float32
    "rotary_pos_emb": True,
    "rotary_emb_dim": HEAD_DIM,
    "use_rmsnorm": True,
    "norm_add_unit_offset": False,
    "ff_no_bias": True,
    "ff_mult": 24 / D,
    "verbose": False,
}
CONSTANTS = {"mixer.values.weights": 0.5, "mixer.q_norm.log_scale": math.log(10)}
"""Values there of weights that we learn."""
NO_ROPE = {"rotary_pos_emb": False}
RMS = {"kind": "rmsnorm", "eps": 1e-20}


def row(name: str, ours: dict[str, Any], theirs: dict[str, Any], **outer: Any) -> Any:
    """Edits of our base, of their layers, and settings of what is around their layers."""
    return pytest.param(ours, theirs, outer, id=name)


def mixer(name: str, value: Any, theirs: dict[str, Any], **outer: Any) -> Any:
    return row(f"{name} {value}", {f"block.mixer.{name}": value}, theirs, **outer)


def ffn(kind: str, theirs: dict[str, Any]) -> Any:
    return row(kind, {"block.ffn": {"kind": kind, "d_ff": 24}}, theirs)


ROWS = [
    row("RMSNorm, RoPE, GELU", {}, {}),
    row("LayerNorm", {"block.norm": {"kind": "layernorm", "bias": False, "eps": 1e-5}}, {"use_rmsnorm": False}),
    row("RMSNorm without gain", {"block.norm.gain": False}, {"use_rmsnorm": False, "use_simple_rmsnorm": True}),
    row("ScaleNorm", {"block.norm": "l2norm"}, {"use_rmsnorm": False, "use_scalenorm": True}),
    row("DyT", {"block.norm": "dyt"}, {"use_rmsnorm": False, "use_dynamic_tanh": True}),
    row("post-norm", {"block.norm_placement": "post"}, {"pre_norm": False}),
    row(
        "post-norm of a pre-norm branch",
        {"block.norm_placement": {"kind": "post", "norm_in": True}},
        {"pre_and_post_norm": True},
    ),
    row("sandwich norm", {"block.norm_placement": "double"}, {"sandwich_norm": True}),
    row(
        "scaled stream",
        {"block.norm_placement": {"kind": "pre", "stream_scale": 0.7}},
        {"scale_residual_constant": 0.7},
    ),
    row(
        "scaled branches", {"block.norm_placement": {"kind": "pre", "branch_scale": 0.7}}, {"depth_scale_residual": 0.7}
    ),
    mixer("position.fraction", 0.5, {"rotary_emb_dim": HEAD_DIM // 2}),
    mixer("position.scaling", {"kind": "linear", "factor": 3.0}, {"rotary_interpolation_factor": 3.0}),
    mixer("position.base", 10_000 * 5 ** (HEAD_DIM / (HEAD_DIM - 2)), {"rotary_base_rescale_factor": 5.0}),
    mixer("position", {"kind": "xpos", "layout": "interleaved"}, {"rotary_xpos": True}),
    mixer("position", "nope", NO_ROPE, use_abs_pos_emb=False),
    mixer("position", "alibi", {**NO_ROPE, "alibi_pos_bias": True}, use_abs_pos_emb=False),
    row(
        "ALiBi of six heads",
        {"block.mixer.position": "alibi", "block.mixer.heads": 6},
        {**NO_ROPE, "alibi_pos_bias": True, "heads": 6},
        use_abs_pos_emb=False,
    ),
    mixer(
        "position",
        {"kind": "t5", "buckets": 8, "max_distance": 20},
        {**NO_ROPE, "rel_pos_bias": True, "rel_pos_num_buckets": 8, "rel_pos_max_distance": 20},
    ),
    mixer("position", {"kind": "learned", "length": T}, NO_ROPE, max_seq_len=T),
    mixer("kv_heads", 2, {"attn_kv_heads": 2}),
    mixer("kv_heads", 1, {"attn_one_kv_head": True}),
    mixer("v_dim", 5, {"attn_value_dim_head": 5}),
    mixer("window", 5, {"attn_max_attend_past": 4}),
    mixer("softcap", 0.5, {"attn_softclamp_logits": True, "attn_logit_softclamp_value": 0.5}),
    mixer("sinks", True, {"attn_head_learned_sink": True}),
    mixer("gate", "feature", {"attn_gate_values": True}),
    mixer("gate", "head", {"attn_gate_values": True, "attn_gate_values_headwise": True}),
    row(
        "gate per head with a bias",
        {"block.mixer.gate": "head", "block.mixer.bias": ["gate"]},
        {"attn_gate_value_heads": True},
    ),
    mixer("value_residual", True, {"add_value_residual": True, "learned_value_residual_mix": False}),
    mixer("v_norm", RMS, {"attn_value_rmsnorm": True}),
    row(
        "RMSNorm of queries and keys",
        {"block.mixer.qk_norm": RMS, "block.mixer.qk_norm_over": "heads"},
        {"attn_qk_rmsnorm": True},
    ),
    row(
        "forgetting attention",
        {"block.mixer.position": "nope", "block.mixer.forget": True},
        {**NO_ROPE, "attn_data_dependent_alibi": True},
        use_abs_pos_emb=False,
    ),
    row("cosine attention", {"block.mixer": {**BASE["block"]["mixer"], "kind": "cosine"}}, {"attn_qk_norm": True}),
    row("bidirectional", {"visible": "all"}, {}),
    row(
        "bidirectional, T5's positions",
        {"visible": "all", "block.mixer.position": {"kind": "t5", "buckets": 8, "max_distance": 20}},
        {**NO_ROPE, "rel_pos_bias": True, "rel_pos_num_buckets": 8, "rel_pos_max_distance": 20},
    ),
    ffn("silu", {"ff_swish": True}),
    ffn("relu", {"ff_custom_activation": nn.ReLU()}),
    ffn("relu2", {"ff_relu_squared": True}),
    ffn("swiglu", {"ff_glu": True, "ff_swish": True}),
    ffn("geglu", {"ff_glu": True}),
    ffn("reglu", {"ff_glu": True, "ff_custom_activation": nn.ReLU()}),
    ffn("glu", {"ff_glu": True, "ff_custom_activation": nn.Sigmoid()}),
    row("biases of the FFN", {"block.ffn.bias": True}, {"ff_no_bias": False}),
    row("tied embeddings", {"tie_embeddings": True}, {}, tie_embedding=True, tie_embedding_scale=1.0),
    row(
        "norm after the embedding",
        {"block.norm": {"kind": "layernorm", "bias": False, "eps": 1e-5}, "embedding_norm": True},
        {"use_rmsnorm": False},
        post_emb_norm=True,
    ),
    row("narrow embedding", {"embedding_dim": 6}, {}, emb_dim=6),
    row(
        "all together",
        {
            "block.mixer.gate": "feature",
            "block.mixer.softcap": 2.0,
            "block.mixer.window": 9,
            "block.mixer.position": "alibi",
            "block.ffn": {"kind": "swiglu", "d_ff": 24},
            "block.norm_placement": "double",
        },
        {
            **NO_ROPE,
            "attn_gate_values": True,
            "attn_softclamp_logits": True,
            "attn_logit_softclamp_value": 2.0,
            "attn_max_attend_past": 8,
            "alibi_pos_bias": True,
            "ff_glu": True,
            "ff_swish": True,
            "sandwich_norm": True,
        },
        use_abs_pos_emb=False,
    ),
]


@pytest.mark.parametrize(("ours", "theirs", "outer"), ROWS)
def test_logits_are_x_transformers(ours: dict[str, Any], theirs: dict[str, Any], outer: dict[str, Any]) -> None:
    model = random_model(zoo.parse(BASE).edit(ours)).double()
    kind = x_transformers.Encoder if model.spec.visible == "all" else x_transformers.Decoder
    layers = kind(**{**THEIR_BASE, **theirs})
    given = {"num_tokens": 29, "max_seq_len": T, "attn_layers": layers, **outer}
    other = x_transformers.TransformerWrapper(**given).double()
    for block in model.blocks:
        for name, parameter in block.named_parameters():
            if name in CONSTANTS:
                parameter.data.fill_(CONSTANTS[name])
    state = copied(model)
    with torch.no_grad():
        for name, parameter in other.named_parameters():
            parameter.copy_(state[name.replace(".fn.", ".")])  # of a layer inside a `Scale`
    tokens = random_tokens(model.spec, 2, T)
    with torch.no_grad():
        found, expected = model(tokens), other(tokens)
    # Our norms and rotations are computed in float32.
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=5e-6 * expected.abs().max().item())
