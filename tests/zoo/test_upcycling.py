"""Models that start as others: experts that are copies of a dense layer, an untied head, layers left out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import zoo
from zoo.conformance.combinations import random_tokens

BASE: dict[str, Any] = {"d_model": 16, "n_layers": 4, "vocab_size": 40, "block.mixer.heads": 2, "block.ffn.d_ff": 24}


def source(**edits: Any) -> zoo.Decoder:
    model = zoo.build(zoo.load("small", **BASE, **edits)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(
                0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
            )
    return model


@pytest.mark.parametrize("over", ["chosen", "all"])
def test_experts_that_are_copies_compute_what_the_dense_layer_did(over: str) -> None:
    """Σ_e w_e FFN(x) = FFN(x) where the weights sum to one: of the chosen, or of all where all are chosen."""
    dense = source()
    moe = {"kind": "topk_moe", "experts": 4, "top_k": 2 if over == "chosen" else 4, "d_ff": 24, "softmax_over": over}
    sparse = zoo.convert(dense, dense.spec.edit({"block.ffn": moe})).eval()
    tokens = random_tokens(dense.spec, 2, 12)
    torch.testing.assert_close(sparse(tokens), dense(tokens), rtol=1e-4, atol=1e-5)


def test_the_router_is_drawn_by_the_seed() -> None:
    dense = source()
    spec = dense.spec.edit({"block.ffn": {"kind": "topk_moe", "experts": 4, "d_ff": 24}})
    one, two, again = (
        zoo.convert(dense, spec, seed=seed).state_dict()["blocks.0.ffn.router.weight"] for seed in (1, 2, 1)
    )
    assert torch.equal(one, again) and not torch.equal(one, two)


def test_experts_as_wide_as_no_dense_layer_are_refused() -> None:
    dense = source()
    with pytest.raises(zoo.SpecError, match=r"experts.gate.weight has the shape"):
        zoo.convert(dense, dense.spec.edit({"block.ffn": {"kind": "topk_moe", "experts": 4, "d_ff": 16}}))


def test_an_untied_head_starts_as_the_table() -> None:
    tied = source()
    untied = zoo.convert(tied, tied.spec.edit({"tie_embeddings": False})).eval()
    tokens = random_tokens(tied.spec, 2, 12)
    torch.testing.assert_close(untied(tokens), tied(tokens), rtol=0, atol=0)


@pytest.mark.parametrize(("growth", "kept"), [("thin", [0, 2]), ("truncate", [0, 1])])
def test_a_shallower_model_has_some_of_the_layers(growth: Any, kept: list[int]) -> None:
    deep = source()
    shallow = zoo.convert(deep, deep.spec.edit({"n_layers": 2}), growth=growth)
    theirs = deep.state_dict()
    for name, value in shallow.state_dict().items():
        head, _, rest = name.partition("blocks.")
        layer, _, own = rest.partition(".")
        assert torch.equal(value, theirs[f"blocks.{kept[int(layer)]}.{own}" if not head and rest else name])


def test_fewer_layers_need_to_be_asked_for() -> None:
    deep = source()
    with pytest.raises(zoo.SpecError, match="going from 4 to 2 blocks needs growth: thin or truncate"):
        zoo.convert(deep, deep.spec.edit({"n_layers": 2}), growth="stack")
