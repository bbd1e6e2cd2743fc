"""Skips across the stack, and tables of values, against plain versions."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import zoo
from zoo.conformance.combinations import random_model, random_tokens
from zoo.site import ForwardPass


@pytest.mark.parametrize("n_layers", [2, 4, 5])
def test_the_upper_half_reads_what_left_its_mirror_image(n_layers: int) -> None:
    spec = zoo.load("small", d_model=24, n_layers=n_layers, unet_skips=True)
    model, tokens = random_model(spec), random_tokens(spec, 2, 7)
    with torch.no_grad():
        x, left = model.embedding(tokens) * spec.embedding_factor, []
        for layer, block in enumerate(model.blocks):
            i = n_layers - 1 - layer
            if i < n_layers // 2:
                x = x + model.skips.weights[i] * left[i]
            x = block(x, ForwardPass.of(tokens))
            left.append(x)
        torch.testing.assert_close(model(tokens), model.read_out(model.norm(x)))


def with_table(module: nn.Module, args: Any, out: Tensor, *, shares: Tensor, rows: Tensor) -> Tensor:
    """λ₁ v + λ₂ E[token], before values are split into heads."""
    return shares[0] * out + shares[1] * rows


@pytest.mark.parametrize("edits", [{"heads": 4, "kv_heads": 2}, {"kind": "differential", "heads": 2}], ids=str)
def test_values_of_the_first_and_last_layers_are_mixed_with_tables(edits: dict[str, Any]) -> None:
    spec = zoo.load("small", d_model=24, n_layers=5, **{"block.mixer": edits})
    mixed = random_model(spec.edit({"value_embeddings": {"tables": 2}}))
    plain = random_model(spec)
    plain.load_state_dict(mixed.state_dict(), strict=False)
    tokens = random_tokens(spec, 2, 7)
    with torch.no_grad():
        for row, (layer, table) in enumerate([(0, 0), (1, 1), (3, 0), (4, 1)]):
            rows = mixed.value_embeddings.tables[table].weight[tokens]
            hook = partial(with_table, shares=mixed.value_embeddings.shares[row], rows=rows)
            plain.blocks[layer].mixer.v.register_forward_hook(hook)
        torch.testing.assert_close(mixed(tokens), plain(tokens))


def test_recomputed_blocks_mix_values_too() -> None:
    edits = {"d_model": 24, "n_layers": 4, "unet_skips": True, "value_embeddings": {"tables": 1}}
    model = random_model(zoo.load("small", **edits)).train()
    tokens, gradients = random_tokens(model.spec, 2, 8), []
    for model.recompute in (False, True):
        model.zero_grad()
        model.loss(tokens[:, :-1], tokens[:, 1:])[0].backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    for name, gradient in gradients[0].items():
        assert torch.equal(gradient, gradients[1][name]), name


def test_tables_start_as_large_as_values_and_count_as_embedding() -> None:
    spec = zoo.load("small", d_model=24, n_layers=4)
    edited = spec.edit({"value_embeddings": {"tables": 2}, "block.mixer.kv_heads": 2})
    model = zoo.build(edited)
    assert model.value_embeddings.tables[1].weight.std().item() == pytest.approx(1, abs=0.1)
    assert torch.equal(model.value_embeddings.shares, torch.full((4, 2), 0.5))
    ours, theirs = zoo.cost(edited), zoo.cost(spec.edit({"block.mixer.kv_heads": 2}))
    assert ours.params_embedding - theirs.params_embedding == 2 * spec.vocab_size * 12
    assert ours.flops_per_token == theirs.flops_per_token


REFUSED = [
    ({"value_embeddings.tables": 3}, r"value_embeddings\.tables: 3 tables need 6 layers, two each, not 4"),
    ({"block.mixer": "mamba2", "value_embeddings": {}}, "layer 0 has no value heads to add to"),
    (
        {"blocks.far.mixer.kv_heads": 1, "pattern": ["block", "block", "block", "far"], "value_embeddings": {}},
        "layers 0 and 3 share a table but have 4 heads of 6 features and 1 heads of 6 features",
    ),
    ({"n_layers": 1, "unet_skips": True}, "unet_skips: needs n_layers of at least 2"),
]


@pytest.mark.parametrize(("edits", "reason"), REFUSED, ids=[reason[-24:] for _, reason in REFUSED])
def test_what_cannot_be_mixed_is_refused(edits: dict[str, Any], reason: str) -> None:
    with pytest.raises(zoo.SpecError, match=reason):
        zoo.load("small", **{"d_model": 24, "n_layers": 4, "block.mixer.heads": 4, **edits})
