"""Multi-token attention against its paper's equations, arXiv:2504.00927, written out score by score."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import zoo
from zoo.conformance.combinations import random_model, random_tokens
from zoo.site import ForwardPass

D, HEADS, LENGTH = 16, 4, 8


def small(**mixer: Any) -> zoo.ModelSpec:
    return zoo.load("small", d_model=D, n_layers=1, vocab_size=31, **{"block.mixer": {"heads": HEADS, **mixer}})


@pytest.mark.parametrize(("queries", "keys", "group"), [(3, 4, 2), (2, 5, None), (1, 2, 4)], ids=str)
@torch.no_grad()
def test_each_weight_depends_on_near_queries_and_keys_and_on_other_heads(
    queries: int, keys: int, group: int | None
) -> None:
    spec = small(kind="multi_token", query_width=queries, key_width=keys, head_group=group, position="nope")
    mixer, x = random_model(spec).blocks[0].mixer, torch.randn(LENGTH, D, generator=torch.Generator().manual_seed(0))
    d = D // HEADS
    q, k, v = (project(x).view(LENGTH, HEADS, d).tolist() for project in (mixer.q, mixer.k, mixer.v))
    kernel = mixer.conv_scores.weight[:, 0].tolist()

    def score(h: int, i: int, j: int) -> float:
        """0 where there is no such key for the query."""
        seen = 0 <= j <= i
        return sum(a * b for a, b in zip(q[i][h], k[j][h], strict=True)) / math.sqrt(d) if seen else 0.0

    weights = torch.zeros(HEADS, LENGTH, LENGTH)
    for h in range(HEADS):
        for i in range(LENGTH):
            row = [
                sum(
                    kernel[h][queries - 1 - a][keys // 2 - b] * score(h, i - a, j - b)
                    for a in range(queries)
                    for b in range(1 - math.ceil(keys / 2), keys // 2 + 1)
                )
                for j in range(i + 1)
            ]
            weights[h, i, : i + 1] = torch.tensor(row).softmax(0)
    if group is not None:
        apart = weights
        weights = torch.zeros_like(apart)
        for h in range(HEADS):
            first = h // group * group
            for g in range(group):
                weights[h] += mixer.mix.weight[h // group, h % group, g] * apart[first + g]
    heads = torch.einsum("hts,shd->thd", weights, torch.tensor(v)).reshape(LENGTH, D)
    found = mixer(x[None], ForwardPass.of(x[None]))[0]
    torch.testing.assert_close(found, mixer.o(heads), rtol=1e-4, atol=1e-5)


def test_it_starts_as_attention() -> None:
    model, plain = zoo.build(small(kind="multi_token", head_group=2)), zoo.build(small(kind="attention"))
    plain.load_state_dict(model.state_dict(), strict=False)
    tokens = random_tokens(model.spec, 2, LENGTH)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), plain(tokens))


@pytest.mark.parametrize(
    ("mixer", "reason"),
    [
        ({"head_group": 3}, "groups of 3 do not divide 4 heads"),
        ({"reuse_kv": True}, "reuse_kv: cannot be combined with multi_token"),
        ({"sparsity": "strided"}, "sparsity: cannot be combined with multi_token"),
    ],
    ids=str,
)
def test_what_it_cannot_do_is_refused(mixer: dict[str, Any], reason: str) -> None:
    with pytest.raises(zoo.SpecError, match=reason):
        small(kind="multi_token", **mixer)
