"""torch.compile sees one graph: a break would cost what compiling gains, and nobody would notice."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import zoo
from tests.zoo.combinations import random_model, random_tokens


@pytest.mark.parametrize(
    "edits",
    [
        {},
        {"block.norm_placement": "double", "block.mixer.kv_heads": 1, "block.mixer.qk_norm": "rmsnorm"},
        {"blocks": {"local": {"mixer.window": 4}, "far": {"mixer.position": "nope"}}, "pattern": ["local", "far"]},
        {"block.topology": "parallel", "block.mixer.softcap": 5.0, "final_softcap": 5.0, "z_loss": 1e-3},
        {"block.mixer": {"kind": "mla", "q_rank": 7}, "block.norm_placement": "hyper_connections"},
        {"block.mixer": {"kind": "differential", "heads": 2}, "block.norm_placement": "deepnorm"},
        {"block.mixer": {"kind": "cosine", "value_residual": True}, "block.norm_placement": "peri"},
    ],
    ids=["plain", "double", "hybrid", "parallel", "mla", "differential", "cosine"],
)
def test_the_loss_is_one_graph(edits: dict[str, Any]) -> None:
    model = random_model(zoo.load("small", d_model=16, n_layers=2, vocab_size=31, **edits)).train()
    tokens = random_tokens(model.spec, 2, 17)
    torch.compiler.reset()
    compiled = torch.compile(model.loss, fullgraph=True, backend="eager")
    expected = model.loss(tokens[:, :-1], tokens[:, 1:])
    torch.testing.assert_close(compiled(tokens[:, :-1], tokens[:, 1:]), expected, rtol=1e-5, atol=1e-5)
