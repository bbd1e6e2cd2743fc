"""Attention, and mixtures over depth, with their formula replaced by fla-core's plain reference of it: outputs and
gradients are the same."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import util
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import zoo
from tests.zoo.peers.reference import by_token, reference
from tests.zoo.peers.test_fla_scans import output_and_gradients, same
from tests.zoo.slow import close, layer_of, random_stream
from zoo.attending.visible import Scoring, Visible
from zoo.conformance.combinations import random_model, random_tokens
from zoo.mixers.attention import Attention
from zoo.mixers.dsa import DeepSeekSparseAttention
from zoo.mixers.nsa import NativeSparseAttention
from zoo.site import ForwardPass

D, T = 12, 24
X = random_stream(T, D)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="causal"),
        pytest.param({"window": 5}, id="windowed"),
        pytest.param({"sinks": True}, id="with sinks"),
        pytest.param({"forget": True, "position": "nope"}, id="forgetting"),
        pytest.param({"forget": True, "window": 5, "sinks": True}, id="forgetting, windowed, with sinks"),
    ],
)
def test_attention_is_fla_s(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    layer: Any = layer_of(Attention.model_validate({"heads": 4, "kv_heads": 2, "head_dim": 6, **settings}), D)
    ours, gates = output_and_gradients(layer, X), []
    if layer.forget is not None:
        layer.forget.register_forward_hook(lambda _module, _given, logs: gates.append(by_token(logs)[..., 0]))

    def theirs(q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
        given = {"scale": scoring.scale, "window_size": visible.window, "sink_bias": scoring.sinks}
        operator = reference("attn/naive", "naive_parallel_attn")
        return by_token(operator(*map(by_token, (q, k, v)), g=gates.pop() if gates else None, **given)[0])

    monkeypatch.setattr("zoo.mixers.attention.attend", theirs)
    same(output_and_gradients(layer, X), ours)


@pytest.mark.parametrize("window", [None, 5])
def test_forgetting_attention_is_fla_s(window: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = Attention(heads=4, kv_heads=2, head_dim=6, forget=True, position="nope", window=window)
    layer: Any = layer_of(spec, D)
    ours, gates = output_and_gradients(layer, X), []
    layer.forget.register_forward_hook(lambda _module, _given, logs: gates.append(by_token(logs)[..., 0]))

    def theirs(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> Tensor:
        operator = reference("forgetting_attn/naive", "naive_forgetting_attn")
        return by_token(operator(*map(by_token, (q, k, v)), gates.pop(), window_size=window))

    monkeypatch.setattr("zoo.mixers.attention.attend", theirs)
    same(output_and_gradients(layer, X), ours)


def test_native_sparse_attention_is_fla_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its three steps, from our compressed blocks: the reference has means in place of the learned φ, and blocks as
    long as their stride."""
    size = 4
    spec = NativeSparseAttention(
        heads=4, kv_heads=2, head_dim=6, compress=size, stride=size, block=size, blocks=4, window=5
    )
    layer: Any = layer_of(spec, D)
    ours, compressed, calls = output_and_gradients(layer, X), layer.compressed_branch, []
    scale = layer.head_dim**-0.5

    def blocks_of(index: int) -> Tensor:
        """Compressed keys (0) or values (1): (B, N, K, d)."""
        return by_token(calls[index])

    def theirs_compressed(q: Tensor, *given: Any) -> tuple[Tensor, Tensor]:
        calls.clear()
        _, weights = compressed(q, *given)
        operator = reference("nsa/naive", "naive_nsa_compression")
        out, _ = operator(by_token(q), blocks_of(0), blocks_of(1), block_size=size, scale=scale)
        calls.append(by_token(q))
        return by_token(out), weights

    def theirs_chosen(q: Tensor, kept: tuple[Tensor, Tensor], *_: Any) -> Tensor:
        indices = reference("nsa/naive", "naive_nsa_topk")(by_token(q), blocks_of(0), 4, size, scale)
        return by_token(reference("nsa/naive", "naive_nsa_selection")(*map(by_token, (q, *kept)), indices, size))

    for phi in (layer.compress_k, layer.compress_v):
        phi.register_forward_hook(lambda _module, _given, blocks: calls.append(blocks))
    monkeypatch.setattr(layer, "compressed_branch", theirs_compressed)
    monkeypatch.setattr("zoo.mixers.nsa.attend_to_blocks", theirs_chosen)
    same(output_and_gradients(layer, X), ours)
    assert len(calls) == 3


def test_deepseek_s_sparse_attention_is_fla_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """The indexer's queries, keys and weights are ours; scores, selection and attention are theirs. It has many heads,
    so that ReLU makes no two scores zero: the reference breaks ties in any order, ours keeps the earlier key."""
    spec = DeepSeekSparseAttention(
        heads=3, kv_rank=8, nope_dim=4, rope_dim=4, v_dim=8, index_heads=16, index_dim=6, top_k=5, index_loss=0.0
    )
    layer: Any = layer_of(spec, D)
    ours, inputs = output_and_gradients(layer, X), []

    def read(operator: Callable[..., Tensor], *given: Tensor) -> Tensor:
        inputs.append(given)
        return operator(*given)

    monkeypatch.setattr("zoo.mixers._block_heads.in_float32", read)

    def theirs(q_nope: Tensor, q_rope: Tensor, kept: list[Tensor], *_: Any) -> Tensor:
        (k, v), q = layer._keys_and_values(*kept[:2]), torch.cat((q_nope, q_rope), dim=-1)
        index_q, index_k, weights = inputs.pop()
        given = (*map(by_token, (q, k, v, index_q)), index_k[:, 0], weights)
        return by_token(reference("dsa/naive", "naive_dsa")(*given, topk=5))

    monkeypatch.setattr(layer, "attend_to_chosen", theirs)
    same(output_and_gradients(layer, X), ours)


def test_gated_slots_of_the_guide_are_fla_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """examples/mixers/gsa.py, which computes in float32."""
    found = util.spec_from_file_location("gsa_of_the_guide", Path("examples/mixers/gsa.py"))
    assert found is not None and found.loader is not None
    module = util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, found.name, module)  # where pydantic looks up its annotations
    found.loader.exec_module(module)
    layer: Any = layer_of(module.GatedSlots(heads=2, slots=3, chunk=8), D)
    step = ForwardPass.of(torch.zeros(1, T))
    with torch.no_grad():
        q, k, v = map(by_token, layer.project(X, step, None))
        decay = torch.nn.functional.logsigmoid(layer.forget(X)).unflatten(-1, (2, 3)) / module.SHARPNESS
        out, _ = reference("gsa/naive", "naive_recurrent_gsa")(q, k, v, 1 - decay.exp(), decay, scale=1.0)
        torch.testing.assert_close(layer(X, step), layer.o(out.flatten(2)), rtol=1e-5, atol=1e-5)


def logits_and_gradients(model: Any, tokens: Tensor) -> list[Tensor]:
    model.zero_grad()
    logits = model(tokens)
    logits.square().mean().backward()
    return [logits.detach(), *(each.grad for each in model.parameters() if each.grad is not None)]


def test_attention_over_depth_is_fla_s(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = zoo.load(
        "small", d_model=16, n_layers=4, **{"block.norm_placement": {"kind": "attention_residuals", "blocks": 2}}
    )
    model, tokens = random_model(spec).double(), random_tokens(spec, 2, 7)
    ours = logits_and_gradients(model, tokens)

    def theirs(depth: Any, x: Tensor) -> Tensor:
        if depth.seen == 1:
            return x[..., 0, :]
        sources = [each.contiguous() for each in x[..., : depth.seen, :].unbind(-2)]
        out: Tensor = reference("attnres/naive", "naive_attnres")(
            depth.query, sources, depth.norm.gain, rms_eps=depth.norm.eps
        )
        return out

    monkeypatch.setattr("zoo.residuals.attention_residuals.DepthAttention.forward", theirs)
    for found, expected in zip(logits_and_gradients(model, tokens), ours, strict=True):
        close(found, expected)  # our norms are computed in float32


def test_sinkhorn_s_iterations_are_fla_s(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = zoo.load("small", d_model=16, n_layers=2, **{"block.norm_placement": {"kind": "mhc", "n": 3}})
    model, tokens = random_model(spec).double(), random_tokens(spec, 2, 7)
    ours = logits_and_gradients(model, tokens)
    monkeypatch.setattr("zoo.residuals.mhc.doubly_stochastic", reference("utils/sinkhorn/naive", "naive_sinkhorn"))
    same(logits_and_gradients(model, tokens), ours)
