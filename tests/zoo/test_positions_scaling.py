"""Scalings of RoPE's frequencies: published numbers, the papers' properties, and transformers' rotations."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, Phi3Config
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

import zoo
from zoo.positions.rope import RoPE
from zoo.site import ForwardPass


def rope(base: float = 1e4, fraction: float = 1.0, **scaling: Any) -> RoPE:
    return RoPE.model_validate({"base": base, "fraction": fraction, "scaling": scaling or None})


def theta(spec: RoPE, dim: int, length: int = 0) -> torch.Tensor:
    return spec.frequencies(dim, torch.tensor(length))


def cos_sin(spec: RoPE, dim: int, start: int, end: int, left_pad: torch.Tensor | None = None) -> torch.Tensor:
    """(2, B, end − start, dim/2), read off from what a layer makes of unit vectors."""
    rows = 1 if left_pad is None else len(left_pad)
    x = torch.zeros(rows, 1, end - start, dim)
    x[..., : dim // 2] = 1
    turned = spec.build(dim, 1).rotate_queries(x, ForwardPass.of(torch.zeros(rows, end - start), start, left_pad))
    return torch.stack(turned[:, 0].chunk(2, dim=-1))


def theirs(rotary: torch.nn.Module, places: torch.Tensor) -> torch.Tensor:
    """The same from transformers, whose tables hold every angle twice."""
    cos, sin = rotary(torch.zeros(1), places)
    return torch.stack((cos, sin))[..., : cos.shape[-1] // 2]


def test_llama3_has_the_published_ratios() -> None:
    spec = rope(5e5, kind="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_length=8192)
    ratio = theta(spec, 128) / theta(rope(5e5), 128)
    for pair, expected in {0: 1.0, 28: 1.0, 29: 0.8282, 32: 0.3711, 34: 0.1902, 35: 0.125, 63: 0.125}.items():
        assert ratio[pair].item() == pytest.approx(expected, abs=5e-5)


def test_yarn_has_the_published_frequencies() -> None:
    spec = rope(1e4, kind="yarn", factor=40.0, original_length=4096)
    ours, plain = theta(spec, 64), theta(rope(1e4), 64)
    for pair, expected in {0: 1.0, 5: 0.237137, 15: 0.008335}.items():
        assert ours[pair].item() == pytest.approx(expected, abs=1e-6)
    assert [i for i in range(32) if ours[i] == plain[i]] == list(range(11))  # low = 10
    torch.testing.assert_close(ours[23:], plain[23:] / 40)  # high = 23
    assert ours[22] > plain[22] / 40 * 1.01


def test_yarn_attention_factor() -> None:
    common = {"kind": "yarn", "factor": 40.0, "original_length": 4096}
    assert rope(**common).magnitude == pytest.approx(0.1 * math.log(40) + 1)
    assert rope(**common, attention_factor=1.5).magnitude == 1.5
    assert rope(**common, mscale=1.0, mscale_all_dim=1.0).magnitude == 1.0
    both = rope(**common, mscale=0.707, mscale_all_dim=1.0).magnitude
    assert both == pytest.approx((0.0707 * math.log(40) + 1) / (0.1 * math.log(40) + 1))


def test_deepseek_scales_scores_by_the_square_of_its_temperature() -> None:
    common = {"kind": "yarn", "factor": 40.0, "original_length": 4096, "mscale": 1.0, "mscale_all_dim": 1.0}
    for asked, factor in ((False, 1.0), (True, (0.1 * math.log(40) + 1) ** 2)):
        spec = zoo.load(
            "small", **{"block.mixer.head_dim": 16, "block.mixer.position.scaling": {**common, "scale_scores": asked}}
        )
        assert spec.layers[0].mixer.scale == pytest.approx(factor / 4)
        fixed = spec.edit({"block.mixer.scale": 0.3})
        assert fixed.layers[0].mixer.scale == 0.3


def test_kimi_k2_steps_from_kept_to_interpolated_frequencies() -> None:
    """Its published config has `beta_fast` equal to `beta_slow`: transformers' frequencies, pair by pair."""
    mixer = zoo.load("kimi_k2").layers[-1].mixer
    scaling = {"rope_type": "yarn", "rope_theta": 50_000.0, "factor": 32.0, "original_max_position_embeddings": 4096}
    published = {**scaling, "beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}
    config = LlamaConfig(
        hidden_size=64, num_attention_heads=1, max_position_embeddings=131_072, rope_parameters=published
    )
    torch.testing.assert_close(theta(mixer.position, 64), LlamaRotaryEmbedding(config).inv_freq, rtol=1e-6, atol=0)


def test_linear_scaling_squeezes_positions() -> None:
    near, far = cos_sin(rope(), 16, 0, 10), cos_sin(rope(kind="linear", factor=4.0), 16, 0, 37)
    torch.testing.assert_close(far[:, :, ::4], near, rtol=1e-5, atol=1e-6)


def test_ntk_keeps_the_fastest_pair_and_interpolates_the_slowest() -> None:
    scaled, plain = theta(rope(kind="ntk", factor=8.0), 32), theta(rope(), 32)
    assert scaled[0] == plain[0]
    assert (plain[-1] / scaled[-1]).item() == pytest.approx(8.0, rel=1e-5)
    ratios = plain / scaled
    assert (ratios[1:] > ratios[:-1]).all()


LLAMA: list[dict[str, Any]] = [
    {"rope_type": "linear", "factor": 3.0},
    {"rope_type": "dynamic", "factor": 3.0},
    {
        "rope_type": "llama3",
        "factor": 6.0,
        "low_freq_factor": 1.5,
        "high_freq_factor": 5.0,
        "original_max_position_embeddings": 40,
    },
    {
        "rope_type": "llama3",
        "factor": 6.0,
        "low_freq_factor": 2.0,
        "high_freq_factor": 2.0,
        "original_max_position_embeddings": 40,
    },
    {"rope_type": "yarn", "factor": 5.0, "original_max_position_embeddings": 30},
    {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 400, "beta_fast": 1.0, "beta_slow": 1.0},
    {"rope_type": "yarn", "factor": 5.0, "original_max_position_embeddings": 4000, "truncate": False},
    {"rope_type": "yarn", "factor": 0.5, "original_max_position_embeddings": 3},
    {
        "rope_type": "yarn",
        "factor": 7.0,
        "original_max_position_embeddings": 100,
        "beta_fast": 9.0,
        "beta_slow": 2.0,
        "mscale": 0.7,
        "mscale_all_dim": 1.3,
    },
    {"rope_type": "yarn", "factor": 7.0, "original_max_position_embeddings": 100, "attention_factor": 0.8},
]
TRAINED = 24


def ours(published: dict[str, Any]) -> dict[str, Any]:
    """A config's parameters under our names."""
    scaling = dict(published)
    scaling["kind"] = scaling.pop("rope_type")
    if scaling["kind"] == "dynamic":
        scaling["original_length"] = TRAINED
    elif "original_max_position_embeddings" in scaling:
        scaling["original_length"] = scaling.pop("original_max_position_embeddings")
    return scaling


def chunks() -> list[tuple[int, int]]:
    """Ends of chunks, over the trained length by a chunk that straddles it and then by single tokens."""
    return [(0, 9), (9, 10), (10, TRAINED), (TRAINED, 31), (31, 32), (32, 33), (33, 60)]


@pytest.mark.parametrize("published", LLAMA, ids=lambda p: p["rope_type"])
@pytest.mark.parametrize("dim", [4, 18, 64])
def test_rotations_are_transformers(published: dict[str, Any], dim: int) -> None:
    """Whole and in chunks: a fresh module of theirs for each, since it remembers the longest text."""
    config = LlamaConfig(
        hidden_size=dim,
        num_attention_heads=1,
        max_position_embeddings=TRAINED,
        rope_theta=700.0,
        rope_scaling=dict(published),
    )
    spec = rope(700.0, **ours(published))
    for parts in ([(0, 60)], [(0, TRAINED)], chunks()):
        rotary = LlamaRotaryEmbedding(config)
        for start, end in parts:
            expected = theirs(rotary, torch.arange(start, end)[None])
            torch.testing.assert_close(cos_sin(spec, dim, start, end), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("attention_factor", [None, 1.7])
def test_longrope_is_phi3(attention_factor: float | None) -> None:
    dim, longest = 12, 96
    published = {
        "rope_type": "longrope",
        "short_factor": [1.0, 1.1, 1.3, 1.2, 2.0, 2.5],
        "long_factor": [1.0, 2.0, 4.0, 8.0, 9.0, 30.0],
    }
    if attention_factor is not None:
        published["attention_factor"] = attention_factor
    config = Phi3Config(
        hidden_size=dim,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=longest,
        original_max_position_embeddings=TRAINED,
        rope_theta=700.0,
        rope_scaling={**published, "original_max_position_embeddings": TRAINED},
    )
    spec = rope(700.0, **ours(published), original_length=TRAINED, factor=longest / TRAINED)
    for parts in ([(0, 60)], [(0, TRAINED)], chunks()):
        rotary = Phi3RotaryEmbedding(config)
        for start, end in parts:
            expected = theirs(rotary, torch.arange(start, end)[None])
            torch.testing.assert_close(cos_sin(spec, dim, start, end), expected, rtol=1e-5, atol=1e-5)


def test_the_longest_row_of_a_padded_batch_decides_the_length() -> None:
    config = LlamaConfig(
        hidden_size=16,
        num_attention_heads=1,
        max_position_embeddings=TRAINED,
        rope_theta=700.0,
        rope_scaling={"rope_type": "dynamic", "factor": 3.0},
    )
    spec = rope(700.0, kind="dynamic", factor=3.0, original_length=TRAINED)
    pads = torch.tensor([20, 3])
    expected = theirs(LlamaRotaryEmbedding(config), (torch.arange(40) - pads[:, None]).clamp(min=0))
    actual = cos_sin(spec, 16, 0, 40, pads)
    for row, pad in enumerate(pads.tolist()):
        torch.testing.assert_close(actual[:, row, pad:], expected[:, row, pad:], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("position", "message"),
    [
        ({"scaling": {"kind": "ntk", "factor": 2}, "fraction": 0.25}, r"position\.scaling: .*more than one pair"),
        ({"scaling": {"kind": "dynamic", "factor": 2, "original_length": 8}, "fraction": 0.25}, r"more than one pair"),
        (
            {
                "scaling": {
                    "kind": "longrope",
                    "factor": 2,
                    "original_length": 8,
                    "short_factor": [1, 1, 1, 1],
                    "long_factor": [1, 2],
                }
            },
            r"^block\.mixer\.position\.scaling\.long_factor: needs 4 factors, one per pair of features, not 2",
        ),
        ({"scaling": {"kind": "llama3", "low_freq_factor": 5.0}}, r"scaling\.high_freq_factor: must be at least"),
        ({"scaling": {"kind": "yarn", "factor": 2, "original_length": 8, "beta_fast": 0.5}}, r"beta_fast: must be"),
        (
            {"scaling": {"kind": "yarn", "factor": 2, "original_length": 8, "scale_scores": True}},
            r"scale_scores: needs mscale_all_dim",
        ),
        ({"scaling": {"kind": "linaer", "factor": 2}}, r"position\.scaling: unknown kind 'linaer' \(did you mean"),
        ({"scaling": "yarn"}, r"scaling\.factor: is missing"),
    ],
)
def test_what_cannot_be_scaled_is_refused_by_name(position: dict[str, Any], message: str) -> None:
    with pytest.raises(zoo.SpecError, match=message):
        zoo.load("small", **{"block.mixer.head_dim": 8, "block.mixer.position": position})


def test_a_scaling_can_be_edited_and_taken_away() -> None:
    spec = zoo.load("small", **{"block.mixer.position.scaling": {"kind": "linear", "factor": 2.0}})
    assert spec.edit({"block.mixer.position.scaling.factor": 3.0}).block.mixer.position.scaling.factor == 3.0
    assert spec.edit({"block.mixer.position.scaling": None}).digest == zoo.load("small").digest
