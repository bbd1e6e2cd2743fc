"""RoPE against complex multiplication, and against transformers."""

from __future__ import annotations

import cmath

import pytest
import torch
from transformers.models.gptj.modeling_gptj import rotate_every_two
from transformers.models.llama.modeling_llama import rotate_half

import zoo
from zoo.positions.rope import RoPE
from zoo.site import ForwardPass


def turned(spec: RoPE, x: torch.Tensor, start: int = 0) -> torch.Tensor:
    tokens = torch.zeros(x.shape[0], x.shape[2], dtype=torch.long)
    return spec.build(x.shape[-1], 1).rotate_queries(x, ForwardPass.of(tokens, start, None))


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("fraction", [1.0, 0.5, 0.7])
def test_rope_is_a_complex_rotation_of_each_pair(layout: str, fraction: float) -> None:
    """The fraction rounds down: of 0.7 · 8 = 5.6 features 5 count, which are turned in 3 pairs."""
    dim, base = 8, 500.0
    x = torch.randn(1, 1, 6, dim, generator=torch.Generator().manual_seed(0))
    y = turned(RoPE(base=base, layout=layout, fraction=fraction), x, start=3)
    rotary, pairs = {1.0: (8, 4), 0.5: (4, 2), 0.7: (5, 3)}[fraction]
    for place in range(6):
        for i in range(pairs):
            a, b = (i, i + pairs) if layout == "half" else (2 * i, 2 * i + 1)
            pair = complex(x[0, 0, place, a], x[0, 0, place, b])
            pair *= cmath.exp(1j * (place + 3) * base ** (-2 * i / rotary))
            assert y[0, 0, place, a].item() == pytest.approx(pair.real, abs=1e-5)
            assert y[0, 0, place, b].item() == pytest.approx(pair.imag, abs=1e-5)
    torch.testing.assert_close(y[..., 2 * pairs :], x[..., 2 * pairs :], rtol=0, atol=0)


def test_layouts_agree_with_transformers() -> None:
    x = torch.randn(2, 3, 5, 16, generator=torch.Generator().manual_seed(1))
    angles = torch.arange(5.0)[:, None] * 10_000.0 ** (-torch.arange(0, 16, 2) / 16)
    for layout, rotate, repeat in (
        ("half", rotate_half, lambda a: torch.cat((a, a), -1)),
        ("interleaved", rotate_every_two, lambda a: a.repeat_interleave(2, -1)),
    ):
        expected = x * repeat(angles).cos() + rotate(x) * repeat(angles).sin()
        torch.testing.assert_close(turned(RoPE(layout=layout), x), expected, rtol=1e-5, atol=1e-5)


def test_scores_depend_on_distance_alone() -> None:
    q, k = torch.randn(2, 1, 1, 1, 16, generator=torch.Generator().manual_seed(2)).unbind(0)
    spec = RoPE(base=1e4)
    scores = [(turned(spec, q, start=s + 5) * turned(spec, k, start=s)).sum().item() for s in (0, 11, 400)]
    assert scores == pytest.approx([scores[0]] * 3, abs=1e-4)


def test_an_odd_dimension_is_refused_by_name() -> None:
    with pytest.raises(
        zoo.SpecError, match=r"^block\.mixer\.position: RoPE rotates pairs: 7 of a head's 7 features cannot be rotated$"
    ):
        zoo.load("small", **{"block.mixer.head_dim": 7})


def test_nope_with_full_attention_cannot_tell_order() -> None:
    """Without positions, swapping two earlier tokens leaves a one-layer model's last logits alone; RoPE does not."""
    for kind, same in (("nope", True), ("rope", False)):
        spec = zoo.load("small", d_model=16, n_layers=1, **{"block.mixer.position": kind, "init.output": "plain"})
        model = zoo.build(spec).eval()
        one, two = model(torch.tensor([[5, 9, 7]]))[0, -1], model(torch.tensor([[9, 5, 7]]))[0, -1]
        assert torch.allclose(one, two, atol=1e-5) is same


def test_with_base_one_all_pairs_turn_by_a_radian_a_token() -> None:
    x = torch.randn(1, 1, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = turned(RoPE(base=1.0, layout="interleaved"), x)
    for place in range(5):
        for i in range(3):
            pair = complex(*x[0, 0, place, 2 * i : 2 * i + 2].tolist()) * cmath.exp(1j * place)
            assert complex(*y[0, 0, place, 2 * i : 2 * i + 2].tolist()) == pytest.approx(pair, rel=1e-6)
    scaling = {"kind": "yarn", "factor": 2.0, "original_length": 8}
    with pytest.raises(zoo.SpecError, match="scaling: YaRN needs a base above 1: with base 1, all pairs rotate"):
        zoo.load("small", **{"block.mixer.position": {"kind": "rope", "base": 1, "scaling": scaling}})
