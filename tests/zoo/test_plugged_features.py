"""The features of examples/features, plugged in: what they compute, keep, cost and refuse, and models without them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import create_model

import zoo
from ablate.wings.plugins.plugin_files import place_of
from zoo.block_features import BlockFeature
from zoo.block_spec import BlockSpec
from zoo.conformance.combinations import random_model, random_tokens
from zoo.conformance.matrix import SMALL
from zoo.conformance.subject import read_in
from zoo.errors import PluginError, SpecError
from zoo.features import Feature
from zoo.settings import registry
from zoo.settings.explain import checked
from zoo.settings.identity import digest_of, identity_of
from zoo.settings.plugged_features import with_features
from zoo.spec import ModelSpec

EXAMPLES = Path(__file__).parents[2] / "examples" / "features"
SETTINGS: dict[str, dict[str, Any]] = {
    "smear_gate": {"smear_gate": {"width": 5}},
    "dense_former": {"dense_former": {"period": 2}},
    "backout": {"backout": {"layer": 2}},
    "shifted_input": {"block": {"shifted_input": {}}},
}
T = 11


@pytest.fixture(scope="module")
def extended() -> Iterator[type[ModelSpec]]:
    """ModelSpec as it is defined where the examples are plugged in, with a base block that takes the block's."""
    places = {path: place_of(path) for path in EXAMPLES.glob("*.py")}
    assert {name for _, name in places.values()} == set(SETTINGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(registry.VARIABLE, ":".join(f"{'/'.join(place)}={path}" for path, place in places.items()))
        block: Any = with_features("zoo.block_features", BlockFeature)(BlockSpec)
        model = create_model("ModelSpec", __base__=ModelSpec, block=(block, block()))
        yield with_features("zoo.features", Feature)(model)
    for package, name in places.values():
        sys.modules.pop(f"{package}.{name}", None)


def spec_of(model: type[ModelSpec], name: str, **more: Any) -> ModelSpec:
    data = ModelSpec().edit(SMALL).dump()
    data["block"] |= SETTINGS[name].get("block", {})
    return checked(model, {**data, **SETTINGS[name], "block": data["block"], **more})


def test_smear_gate_adds_a_gated_share_of_the_token_before(extended: type[ModelSpec]) -> None:
    model: Any = random_model(spec_of(extended, "smear_gate")).double()
    tokens = random_tokens(model.spec, 2, T)
    step = model.step(tokens, 0, None, {})
    embedded = model.embed(tokens, step)
    expected = embedded.clone()
    for row in range(2):
        for t in range(1, T):
            gate = torch.sigmoid(sum(w * x for w, x in zip(model.smear_gate.gate.weight[0], embedded[row, t])))  # noqa: B905
            expected[row, t] += model.smear_gate.factor * gate * embedded[row, t - 1]
    for block in model.blocks:
        expected = block(expected, step)
    torch.testing.assert_close(model(tokens), model.read_out(model.norm(expected)))


def test_dense_former_reads_weighted_sums_of_all_streams_below(extended: type[ModelSpec]) -> None:
    model: Any = random_model(spec_of(extended, "dense_former", n_layers=5)).double()
    tokens = random_tokens(model.spec, 2, T)
    step = model.step(tokens, 0, None, {})
    y = model.embed(tokens, step)
    streams = [y]
    for after, block in enumerate(model.blocks, 1):
        y = block(y, step)
        streams.append(y)
        if after % 2 == 0:
            weights = dict(model.depth_weights.named_parameters())[str(after)]
            y = sum(weights[j] * streams[j] for j in range(after + 1))
    torch.testing.assert_close(model(tokens), model.read_out(model.norm(y)))
    fresh: Any = zoo.build(model.spec)
    assert [list(weights) for weights in fresh.depth_weights.parameters()] == [[0, 0, 1], [0, 0, 0, 0, 1]]


@pytest.mark.parametrize(("given", "early"), [({}, 4), ({"layer": 2}, 2)])
def test_backout_takes_a_share_of_an_earlier_stream_from_what_the_head_reads(
    extended: type[ModelSpec], given: dict[str, int], early: int
) -> None:
    model: Any = random_model(spec_of(extended, "backout", n_layers=5, backout=given)).double()
    tokens = random_tokens(model.spec, 2, T)
    step = model.step(tokens, 0, None, {})
    streams = [model.embed(tokens, step)]
    for block in model.blocks:
        streams.append(block(streams[-1], step))
    read = streams[5] - model.backout.factor * streams[early]
    torch.testing.assert_close(model(tokens), model.read_out(model.norm(read)))
    with pytest.raises(SpecError, match=r"backout.layer: must be less than n_layers \(2\), not 2"):
        spec_of(extended, "backout", n_layers=2)


def test_shifted_input_mixes_the_input_of_each_branch_with_the_one_before(extended: type[ModelSpec]) -> None:
    model: Any = random_model(spec_of(extended, "shifted_input")).double()
    tokens = random_tokens(model.spec, 2, T)
    step = model.step(tokens, 0, None, {})
    x = model.embed(tokens, step)
    for block in model.blocks:
        for place, residual in (("mixer", block.mixer_residual), ("ffn", block.ffn_residual)):
            h = residual.norm_in(x)
            share = block.shifted.shares[place]
            before = [h[:, t - 1] if t else torch.zeros_like(h[:, 0]) for t in range(T)]
            read = torch.stack([h[:, t] + share * (before[t] - h[:, t]) for t in range(T)], dim=1)
            x = x + getattr(block, place)(read, step)
    torch.testing.assert_close(model(tokens), model.read_out(model.norm(x)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SETTINGS)
def test_cached_decoding_parameters_and_cache_are_as_declared(name: str, extended: type[ModelSpec]) -> None:
    spec = spec_of(extended, name)
    model = random_model(spec).double()
    tokens = random_tokens(spec, 2, T)
    cache = model.new_cache(2, T)
    pads = torch.tensor([0, 3])
    with torch.no_grad():
        whole = model(tokens, left_pad=pads)
        torch.testing.assert_close(read_in(model, tokens, [5, 1, 4, 1], cache, {}, pads)[1, 3:], whole[1, 3:])
    assert zoo.cost(spec).params == sum(parameter.numel() for parameter in model.parameters())
    assert cache.nbytes == zoo.cost(spec).cache_bytes(2, T, "float64")


def test_models_without_the_feature_keep_their_digest_and_others_name_the_plugin(extended: type[ModelSpec]) -> None:
    plain = ModelSpec().edit(SMALL)
    same = checked(extended, plain.dump())
    assert same.digest == plain.digest and digest_of(identity_of(same)) == digest_of(identity_of(plain))
    assert same.dump() == plain.dump() and registry.versions_of(same) is None
    for name in SETTINGS:
        with_it = spec_of(extended, name)
        assert with_it.digest != plain.digest
        assert [label.partition(".")[2] for label in registry.versions_of(with_it) or ()] == [name]


def test_mistakes_are_told_by_path(extended: type[ModelSpec]) -> None:
    with pytest.raises(SpecError, match=r"^smear_gate.width: must be at most d_model \(24\), not 25"):
        spec_of(extended, "smear_gate", smear_gate={"width": 25})
    with pytest.raises(SpecError, match=r"smear_gate.widht: unknown key \(did you mean 'width'\?\)"):
        spec_of(extended, "smear_gate", smear_gate={"widht": 5})
    with pytest.raises(SpecError, match=r"^visible: smear_gate needs a causal model"):
        spec_of(extended, "smear_gate", visible="all")
    with pytest.raises(SpecError, match=r"block.shifted_input: is causal"):
        spec_of(extended, "shifted_input", visible="all")


@pytest.mark.parametrize("name", ["first_stream", "injection", "layers"])
def test_a_name_that_the_model_uses_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a setting, of a file in the folder, of a property."""
    monkeypatch.setenv(registry.VARIABLE, f"zoo.features/{name}={tmp_path / 'mine.py'}")
    with pytest.raises(PluginError, match=f"the name {name} is already used in features: choose another"):
        with_features("zoo.features", Feature)(ModelSpec)
