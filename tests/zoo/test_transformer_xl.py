"""Transformer-XL's positions against equation (c) to (e) of the paper, one score at a time in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import XLNetConfig
from transformers.models.xlnet.modeling_xlnet import XLNetModel, XLNetRelativeAttention

import zoo
from ablate.planning.plan import training_cost
from ablate.training.spec import TrainSpec
from tests.zoo.slow import close, layer_of, mix, project, random_stream, run, write
from zoo.conformance.combinations import random_model, random_tokens
from zoo.conformance.counting import counted
from zoo.mixers.attention import Attention
from zoo.positions.transformer_xl import TransformerXL

D, T = 12, 17


def sinusoid(distance: int, features: int) -> Tensor:
    """R: sin(m / 10000^(2f/n)) for each f, then the cosines; the last cosine is missing where n is odd."""
    angles = [distance / 10_000.0 ** (2 * f / features) for f in range(math.ceil(features / 2))]
    waves = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
    return torch.tensor(waves[:features], dtype=torch.float64)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "window"), [(4, 4, 3, None), (3, 1, 5, None), (2, 2, 4, 5)], ids=str
)
def test_a_score_is_the_sum_of_four_terms(heads: int, kv_heads: int, head_dim: int, window: int | None) -> None:
    spec = Attention(heads=heads, kv_heads=kv_heads, head_dim=head_dim, window=window, position=TransformerXL())
    layer: Any = layer_of(spec, D)
    x = random_stream(T, D)
    q, k, v = project(layer, "q", x, heads), project(layer, "k", x, kv_heads), project(layer, "v", x, kv_heads)
    w_r = layer.position.project.weight.detach()  # (H·d, n)
    u, bias = layer.position.u.detach(), layer.position.v.detach()
    weights = torch.zeros(heads, T, T, dtype=torch.float64)
    for h in range(heads):
        for i in range(T):
            seen = range(0 if window is None else max(0, i - window + 1), i + 1)
            scores = []
            for j in seen:
                key = k[h * kv_heads // heads, j]
                place = (w_r @ sinusoid(i - j, heads * head_dim))[h * head_dim : (h + 1) * head_dim]
                terms = (q[h, i] @ key, q[h, i] @ place, u[h] @ key, bias[h] @ place)
                scores.append(sum(float(term) for term in terms) / math.sqrt(head_dim))
            weights[h, i, seen.start : i + 1] = torch.tensor(scores, dtype=torch.float64).softmax(0)
    close(run(layer, x), write(layer, mix(weights, v)))


def test_xlnet_attends_in_the_same_way() -> None:
    """transformers' XLNet, which has the same positions, shown earlier tokens only. R: (2T, 1, n), far ones first."""
    layer: Any = layer_of(Attention(heads=4, position=TransformerXL()), D)
    config = XLNetConfig(d_model=D, n_head=4, n_layer=1, d_inner=D, dropout=0.0)
    theirs, x = XLNetRelativeAttention(config).double().eval(), random_stream(T, D)
    distances = XLNetModel(config).relative_positional_encoding(T, T, 1).double()
    position = layer.position
    q, k, v = (project(layer, name, x, 4).permute(1, 0, 2)[:, None] for name in "qkv")  # (T, 1, H, d)
    k_r = (distances @ position.project.weight.detach().T).view(-1, 1, 4, 3)
    ahead = torch.ones(T, T, dtype=torch.float64).triu(1)[..., None, None]
    with torch.no_grad():
        theirs.r_w_bias.copy_(position.u)
        theirs.r_r_bias.copy_(position.v)
        heads = theirs.rel_attn_core(q, k, v, k_r, attn_mask=ahead)
    close(run(layer, x), write(layer, heads[:, 0].transpose(0, 1)))


SMALL = {"d_model": 24, "n_layers": 2, "vocab_size": 31, "block.mixer.position": "transformer_xl"}


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_distances_are_projected_once_for_all_rows_of_a_step(batch: int) -> None:
    """The FLOPs that a plan declares for a step are those torch counts, with two modules that look ahead and without:
    a share of each token, which is smaller in a larger batch."""
    train = TrainSpec(context=9, batch=batch)
    for edits in ({}, {"mtp": {"depth": 2}}):
        spec = zoo.load("small", **SMALL, **edits)
        model, tokens = random_model(spec).train(), random_tokens(spec, batch, 10)
        with zoo.attention_backend("plain"), counted(model, passes=3) as count:
            model.loss(tokens[:, :-1], tokens[:, 1:])[0].backward()
        declared = training_cost(train, spec, [9]).flops_per_token_square * batch * 9
        assert count.total == pytest.approx(declared, rel=1e-9)


def test_other_models_take_nothing_beside_their_tokens() -> None:
    cost = zoo.cost(zoo.load("small"))
    assert cost.flops_per_pass == cost.flops_per_step == 0


def test_a_compiled_step_of_decoding_reads_the_same_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled step reads every slot of the cache at once, with empty ones at negative places."""
    spec = zoo.load("small", **SMALL)
    model, tokens = random_model(spec), random_tokens(spec, 2, 9)
    cache = model.new_cache(2, 12)
    with torch.no_grad():
        model(tokens[:, :8], cache)
        expected = model(tokens)[:, 8]
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        found = model.logits_at(tokens[:, 8:], torch.tensor([8]), cache)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
