"""Equality of settings in digests: what JSON tells apart is not the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zoo
from zoo.settings.identity import canonical, is_same

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5])
    | st.sampled_from(["", "a"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=4,
)


@given(PLAIN, PLAIN)
def test_values_are_the_same_whose_json_is(one: object, other: object) -> None:
    assert is_same(one, other) == (canonical(one) == canonical(other))
    assert is_same(one, one)


AROUND: list[dict[str, Any]] = [
    *({name: True} for name in ("unet_skips", "first_stream", "layer_gains")),
    *({name: {}} for name in ("value_embeddings", "altup", "per_layer_embeddings", "chunks", "mtp", "sharing")),
    {"layer_loss": 0.1},
    {"encoder": {}},
    {"sharing": {"blocks": 1, "prelude": 1, "coda": 1, "injection": True}},
    {"blocks": {"a": {"norm": "rmsnorm", "norm_placement": "attention_residuals"}}},
    {"head_transform": "gelu"},
    {"embedding_norm": True},
    {"final_norm": True},
]


@pytest.mark.parametrize("edits", AROUND, ids=str)
def test_a_norm_around_the_layers_is_part_of_what_a_model_is(edits: dict[str, Any]) -> None:
    """No layer uses the base block, whose norm features and residuals may have of their own: two models that differ in
    parameters differ in digest, and two that differ in nothing do not."""
    beside = {"blocks": {"a": {"norm": "rmsnorm"}}, "pattern": ["a"], "final_norm": False, "n_layers": 6, **edits}
    specs = [zoo.load("small", d_model=32, **beside, **{"block.norm": norm}) for norm in ("rmsnorm", "layernorm")]
    one, other = (dict(zoo.build(spec).named_parameters()) for spec in specs)
    assert (one.keys() == other.keys()) == (specs[0].digest == specs[1].digest)
