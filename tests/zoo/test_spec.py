"""Specs: edits, digests, errors, patterns, presets, initialisation, costs."""

from __future__ import annotations

import copy
import hashlib
import math
import subprocess
import sys
from typing import Any

import pytest
import torch

import zoo
from zoo.settings.axis import kind_of, variants
from zoo.settings.edits import expand, flatten, merge
from zoo.settings.registry import members
from zoo.site import mean_keys

AXES = ["zoo.norms", "zoo.residuals", "zoo.positions", "zoo.mixers", "zoo.ffns"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"block.norm_placment": "post"}, "block.norm_placment: unknown key (did you mean 'norm_placement'?)"),
        ({"window": 4}, "window: unknown key (did you mean 'block.mixer.window'?)"),
        ({"block.kv_heads": 2}, "block.kv_heads: unknown key (did you mean 'mixer.kv_heads'?)"),
        ({"block.mixer.kv_heads": 3}, "block.mixer.kv_heads: 3 kv heads do not divide 4 heads"),
        ({"block.mixer.heads": 3},
         "block.mixer.heads: 3 heads do not divide d_model 128; set head_dim to choose it freely"),
        ({"block.ffn": "swigul"}, "block.ffn: unknown kind 'swigul' (did you mean 'swiglu'?)"),
        ({"block.norm": False}, "block.norm: must be a kind, or a map with the key 'kind'"),
        ({"block.mixer.position.bass": 1e4}, "block.mixer.position.bass: unknown key (did you mean 'base'?)"),
        ({"block.mixer.qk_norm": {"kind": "rmsnorm", "epsilon": 1.0}},
         "block.mixer.qk_norm.epsilon: unknown key (did you mean 'eps'?)"),
        ({"d_model": "wide"}, "d_model: must be a whole number, not 'wide'"),
        ({"d_model": 64.5}, "d_model: must be a whole number, not 64.5"),
        ({"n_layers": 0}, "n_layers: must be greater than 0, not 0"),
        ({"blocks": {"a": {"mixer.windw": 2}}}, "blocks.a.mixer.windw: unknown key (did you mean 'window'?)"),
        ({"blocks": {"block": {}}}, "blocks.block: 'block' is the base block: edit it as block.…"),
        ({"pattern": ["local"]}, "pattern: unknown block 'local': one of block"),
        ({"block.ffn.d_ff": "4y"},
         "block.ffn.d_ff: must be a positive whole number or a ratio to d_model such as 4x or 8/3x, not '4y'"),
        ({"block.ffn.d_ff": True},
         "block.ffn.d_ff: must be a positive whole number or a ratio to d_model such as 4x or 8/3x, not true"),
        ({"block.ffn.d_ff": 4.0},
         "block.ffn.d_ff: must be a positive whole number or a ratio to d_model such as 4x or 8/3x, not 4.0"),
    ],
)  # fmt: skip
def test_errors_name_the_path_and_the_nearest_key(edit: dict[str, Any], message: str) -> None:
    with pytest.raises(zoo.SpecError) as caught:
        zoo.load("small", **edit)
    assert str(caught.value) == message


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(zoo.SpecError, match=r"unknown preset 'lama3' \(did you mean 'llama3'\?\)"):
        zoo.load("lama3")


def test_edits_merge_by_path_and_replace_by_kind() -> None:
    base = {"a": {"kind": "x", "p": 1, "q": 2}, "b": [1]}
    assert merge(base, {"a.p": 5}) == {"a": {"kind": "x", "p": 5, "q": 2}, "b": [1]}
    assert merge(base, {"a": {"kind": "x", "p": 5}}) == {"a": {"kind": "x", "p": 5, "q": 2}, "b": [1]}
    assert merge(base, {"a": {"kind": "y", "p": 5}}) == {"a": {"kind": "y", "p": 5}, "b": [1]}
    assert merge(base, {"a": "y"}) == {"a": {"kind": "y"}, "b": [1]}
    assert merge(base, {"a": "x", "b": [2]}) == {"a": base["a"], "b": [2]}
    assert expand({"a.b": 1, "a": {"c.d": 2}}) == {"a": {"b": 1, "c": {"d": 2}}}
    assert dict(flatten({"a": {"b": 1, "c": {}}})) == {"a.b": 1, "a.c": {}}


def test_two_spellings_of_one_architecture_share_a_digest() -> None:
    spec = zoo.load("small")
    for same in (
        {"block.ffn.d_ff": 344},
        {"block.mixer.kv_heads": 4},
        {"block.mixer.head_dim": 32},
        {"blocks": {"again": {}}, "pattern": ["again", "block"]},
        {"final_norm": True},
        {"n_layers": 4.0, "block.mixer.kv_heads": 4.0},  # as YAML reads 4e0
    ):
        assert spec.edit(same).digest == spec.digest, same
    others = [
        {"block.ffn.d_ff": 352},
        {"embedding_scale": 2.0},
        {"z_loss": 1e-4},
        {"init.output": "plain"},
        {"block.mixer.window": 64},
    ]
    assert len({spec.digest, *(spec.edit(other).digest for other in others)}) == 6


def test_a_pattern_repeats_over_the_layers() -> None:
    spec = zoo.load(
        "small",
        n_layers=6,
        blocks={"local": {"mixer.window": 8}, "far": {"mixer": {"position": "nope"}}},
        pattern=["local", "local", "far"],
        **{"block.mixer.kv_heads": 2},
    )
    assert [b.mixer.window for b in spec.layers] == [8, 8, None, 8, 8, None]
    assert [b.mixer.position.kind for b in spec.layers] == ["rope", "rope", "nope"] * 2
    assert {b.mixer.kv_heads for b in spec.layers} == {2}


@pytest.mark.parametrize("axis", AXES)
def test_a_variant_has_a_file_in_its_folder_and_says_what_it_is(axis: str) -> None:
    alone = set(members(axis))
    for name, variant in variants(axis).items():
        assert kind_of(variant) == name
        assert variant.__module__ == f"{axis}.{name}" or (
            name not in alone and variant.__module__.startswith(f"{axis}.")
        )
        assert len((variant.__doc__ or "").strip()) > 20


def test_initial_values_follow_the_role() -> None:
    spec = zoo.load("small", d_model=256, vocab_size=1000, tie_embeddings=False, **{"block.mixer.bias": True})
    model = zoo.build(spec)
    roles = zoo.roles(model)
    assert set(roles.values()) == {"embedding", "input", "output", "head", "gain", "bias"}
    for name, value in model.named_parameters():
        fan_in = value.shape[-1]
        expected = {"embedding": 1 / 16, "input": fan_in**-0.5, "output": (2 * 4 * fan_in) ** -0.5}
        assert value.std().item() == pytest.approx(expected.get(roles[name], 0.0), rel=0.02), name
        assert value.mean().item() == pytest.approx(1.0 if roles[name] == "gain" else 0.0, abs=2e-3)


def test_output_projections_start_as_asked() -> None:
    spec = zoo.load("small", d_model=256, n_layers=8)
    for rule, std in (("zero", 0.0), ("plain", 1 / 16), ("scaled", 1 / 16 / math.sqrt(16))):
        weight = zoo.build(spec.edit({"init.output": rule})).blocks[3].mixer.o.weight
        assert weight.std().item() == pytest.approx(std, rel=0.02)


def test_initial_values_are_drawn_by_seed_and_name_and_stream_zero_adds_nothing() -> None:
    spec = zoo.load("small", d_model=64, n_layers=1)
    for stream, key in ((0, b"3:embedding.weight"), (2, b"3/2:embedding.weight")):
        generator = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(key).digest()[:8], "big") >> 1)
        table = zoo.build(spec.edit({"init.stream": stream}), seed=3).get_parameter("embedding.weight")
        assert torch.equal(table, torch.randn(table.shape, generator=generator) / 8)
    with pytest.raises(zoo.SpecError, match=r"init\.stream: "):
        spec.edit({"init.stream": -1})


def test_models_that_share_shapes_share_initial_values() -> None:
    """Paired seeds: an edit of one part leaves the start of all others alone."""
    spec = zoo.load("small", **{"init.output": "plain"})
    base = dict(zoo.build(spec, seed=3).named_parameters())
    for edit in ({"block.mixer.kv_heads": 1}, {"block.ffn": "gelu"}, {"block.norm_placement": "double"}):
        other = dict(zoo.build(spec.edit(edit), seed=3).named_parameters())
        shared = [n for n in base if n in other and base[n].shape == other[n].shape]
        assert len(shared) > 10
        assert all(torch.equal(base[n], other[n]) for n in shared)
    reseeded = zoo.build(spec, seed=4).state_dict()
    assert not torch.equal(reseeded["blocks.0.mixer.q.weight"], base["blocks.0.mixer.q.weight"])
    assert not torch.equal(base["blocks.0.mixer.q.weight"], base["blocks.1.mixer.q.weight"])


@pytest.mark.parametrize(("context", "window"), [(1, None), (7, None), (7, 3), (7, 7), (7, 100), (64, 1)])
def test_mean_keys_is_the_mean_over_queries(context: int, window: int | None) -> None:
    counted = [min(t + 1, window or context) for t in range(context)]
    assert mean_keys(context, window) == pytest.approx(sum(counted) / context)


def test_flops_of_a_known_model() -> None:
    """D 256, 6 layers, 8 heads, F 688, V 4096, T 256: counted by hand, 37.1 MFLOP per trained token."""
    edits = {"block.mixer.heads": 8, "block.ffn.d_ff": 688}
    cost = zoo.cost(zoo.load("small", d_model=256, n_layers=6, vocab_size=4096, **edits), context=256)
    matrices = 6 * (4 * 256**2 + 3 * 256 * 688) + 256 * 4096
    scores = 6 * 2 * 256 * (257 / 2)
    assert cost.flops_per_token == 3 * (2 * matrices + 2 * scores)
    assert cost.flops_per_token == pytest.approx(37.1e6, rel=0.01)
    assert cost.params == matrices + 13 * 256


def test_importing_zoo_loads_no_torch() -> None:
    """Nor does using it load torch's compiler, which takes seconds: every command would."""
    code = (
        "import sys, zoo; assert 'torch' not in sys.modules; zoo.load('llama3'); assert 'torch' in sys.modules; "
        "zoo.build; assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_copy_of_a_model_shares_its_specs_and_no_weight() -> None:
    model = zoo.build(zoo.load("small", vocab_size=32, d_model=16, n_layers=2))
    copied = copy.deepcopy(model)
    assert copied.spec is model.spec
    assert {each.data_ptr() for each in copied.parameters()}.isdisjoint(each.data_ptr() for each in model.parameters())
