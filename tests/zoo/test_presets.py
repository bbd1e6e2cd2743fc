"""Published models: their size at full scale, what is said of them, and that each works at a small size."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import zoo
from tests.many import few, over
from zoo import presets
from zoo.conformance.combinations import given_to, random_tokens
from zoo.conformance.shrink import shrunk
from zoo.presets import Preset
from zoo.settings.edits import expand

NAMES = [name for name in presets.names() if presets.preset(name).buildable]
every_preset = pytest.mark.parametrize("name", NAMES)


@over([*NAMES, *presets.sized_names()])
def test_presets_have_the_published_size(name: str) -> None:
    """Within 1 %, or a note says the ratio and why; active parameters too."""
    preset = presets.preset(name)
    cost = zoo.cost(preset.spec)
    counts = {
        "published": (cost.params, preset.published_parameters),
        "published active": (cost.params_active, preset.published_active_parameters),
    }
    for which, (counted, published) in counts.items():
        stated = re.search(rf"(\d\.\d+) of the {which} count", preset.note or "")
        ratio = counted / published if published else 1.0
        if abs(ratio - 1) > 0.01:
            assert stated is not None, f"{ratio:.3f} of the {which} count, and no note says why"
            assert float(stated[1]) == pytest.approx(ratio, rel=0.01)
        else:
            assert stated is None


@over(presets.names())
def test_a_preset_names_its_source_and_what_is_assumed_in_it(name: str) -> None:
    preset = presets.preset(name)
    assert preset.source == "this project" or preset.source.startswith(("arXiv:", "https://"))
    for path in preset.assumed:
        assert _at(expand(preset.parts), path) is not None, path


def _at(data: Any, path: str) -> Any:
    for key in path.split("."):
        data = {"kind": data}.get(key) if isinstance(data, str) else expand(data).get(key)
    return data


def test_a_family_has_its_own_size_and_others() -> None:
    assert presets.preset("llama3-8b").spec == presets.preset("llama3").spec
    assert presets.preset("llama3-8b").published_parameters == presets.preset("llama3").published_parameters
    large = presets.preset("llama3-70b")
    assert (large.name, large.published_parameters) == ("llama3-70b", 7.06e10)
    assert zoo.load("llama3-70b", **{"block.mixer.kv_heads": 4}).block.mixer.kv_heads == 4
    assert all(size.edits or size.published_parameters is None for size in large.sizes.values())
    for name in ("llama3-7b", "llama3-", "llama-3-70b", "mistral_7b-70b"):
        with pytest.raises(zoo.SpecError, match=f"unknown preset '{name}'"):
            presets.preset(name)
    with pytest.raises(zoo.SpecError, match=r"did you mean 'llama3-70b'\?"):
        presets.preset("llama3-7b")


@over(presets.sized_names())
def test_a_size_says_its_published_count(name: str) -> None:
    assert presets.preset(name).published_parameters is not None


def test_a_model_of_which_too_little_is_public_cannot_be_built() -> None:
    with pytest.raises(zoo.SpecError, match=r"preset: 'gpt4' cannot be built: public are only .*SwiGLU"):
        zoo.load("gpt4", d_model=64)


@every_preset
def test_a_shrunk_preset_has_the_same_parts(name: str) -> None:
    full, small = zoo.load(name), shrunk(name)
    assert _kinds(small) == _kinds(full)
    assert zoo.cost(small).params < 1_000_000
    assert small.n_layers <= 8


def _kinds(spec: zoo.ModelSpec) -> set[Any]:
    """The makeup of each layer, without its sizes, and whether heads are grouped and attention windowed."""

    def named(part: Any) -> Any:
        if not isinstance(part, dict):
            return part if isinstance(part, bool | str) or part is None else type(part).__name__
        return tuple((key, named(value)) for key, value in part.items() if key not in ("kv_heads", "fraction"))

    return {named(layer.model_dump(mode="json")) for layer in spec.layers}


@pytest.mark.parametrize("name", few(NAMES, 24))
def test_a_shrunk_preset_learns(name: str) -> None:
    """16 steps on one batch: the loss falls. T5's, whose logits are scaled by 1/√D, falls slowest."""
    spec = shrunk(name)
    model, tokens, given = zoo.build(spec).train(), random_tokens(spec, 2, 17), given_to(spec, 2, 16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    losses = []
    torch.manual_seed(0)
    for _ in range(16):
        objective, nats = model.loss(tokens[:, :-1], tokens[:, 1:], **given)
        optimizer.zero_grad()
        objective.backward()
        optimizer.step()
        losses.append(nats.item())
    assert losses[-1] < 0.9 * losses[0]
    assert sum(losses[8:]) < sum(losses[:8])


def started(spec: zoo.ModelSpec) -> zoo.Decoder:
    """The model at the start of training, except that parameters at zero, which would hide what they multiply, are
    random."""
    model = zoo.build(spec)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.mark.parametrize("name", [name for name in NAMES if zoo.load(name).visible != "all"])
@pytest.mark.parametrize("chunks", [pytest.param([1] * 15, marks=pytest.mark.slow), [11, 1, 3]], ids=str)
def test_a_shrunk_preset_decodes_as_it_reads(name: str, chunks: list[int]) -> None:
    """Beyond the window of 8, where there is one."""
    spec = shrunk(name)
    model, tokens, given = started(spec).eval(), random_tokens(spec, 2, 15), given_to(spec, 2, 15, prefix=1)
    cache = model.new_cache(batch=2, capacity=15)
    with torch.no_grad():
        first, *rest = tokens.split(chunks, dim=1)
        cached = torch.cat([model(first, cache, **given), *(model(chunk, cache) for chunk in rest)], dim=1)
        whole = model(tokens, **given)
    assert (cached - whole).abs().max() <= 1e-5 * max(1.0, whole.abs().max().item())


def test_shrinking_keeps_ratios() -> None:
    small = shrunk("command_a")
    assert (small.d_model, small.n_layers, small.pattern) == (64, 2, ("block", "far"))
    local, far = small.layers
    assert (local.mixer.window, far.mixer.window, far.mixer.position.kind) == (8, None, "nope")
    assert (local.mixer.heads, local.mixer.kv_heads, local.mixer.head_dim) == (4, 2, 16)
    assert local.ffn.d_ff == 3 * 64
    palm = shrunk("palm").layers[0]
    assert (palm.mixer.kv_heads, palm.topology, palm.ffn.d_ff) == (1, "parallel", 4 * 64)


def test_presets_are_told_apart_by_their_files_alone() -> None:
    data = {name: presets.preset(name) for name in presets.names()}
    assert all(isinstance(preset, Preset) and preset.name == name for name, preset in data.items())
    assert len({preset.spec.digest for preset in data.values() if preset.buildable}) == len(NAMES)


@every_preset
def test_a_loaded_model_is_shown_as_its_edits(name: str) -> None:
    """The representation is the call that makes the model, however it was edited; what is shown is no part of what it
    is."""
    preset = zoo.load(name)
    of_parts = {"vocab_size": 77, "block.norm": {"kind": "layernorm", "eps": 0.5}, "z_loss": 0.1}
    for spec in (preset, preset.edit({"vocab_size": 77, "block.dropout": 0.25}), preset.edit(of_parts)):
        assert len(repr(spec)) < 120
        assert eval(repr(spec)) == spec
        plain = zoo.parse(spec.dump())
        assert plain == spec
        assert (plain.dump(), plain.digest) == (spec.dump(), spec.digest)
        assert repr(plain).startswith("ModelSpec(")


def test_a_copy_with_other_values_is_not_shown_as_its_preset() -> None:
    copied = zoo.load("llama3").model_copy(update={"d_model": 64})
    assert repr(copied).startswith("ModelSpec(") and "d_model=64" in repr(copied)


def test_a_spec_shows_what_differs_from_the_defaults() -> None:
    spec = zoo.parse({"vocab_size": 16, "d_model": 16, "n_layers": 1, "block.norm": {"kind": "layernorm", "eps": 0.5}})
    assert str(spec) == "ModelSpec(vocab_size=16, d_model=16, n_layers=1, block=BlockSpec(norm=LayerNorm(eps=0.5)))"
