"""T5's buckets and ALiBi against published numbers, transformers, and scores added up one by one."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor as bloom_alibi
from transformers.models.falcon.modeling_falcon import build_alibi_tensor as falcon_alibi
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor as mpt_alibi
from transformers.models.t5.modeling_t5 import T5Attention

import zoo
from zoo.attend import attend, attention_backend
from zoo.attending.visible import Scoring, Visible
from zoo.conformance.combinations import random_model, random_tokens
from zoo.positions.alibi import ALiBi
from zoo.positions.t5 import T5
from zoo.site import ForwardPass

HEADS = [1, 2, 3, 4, 6, 8, 12, 16, 20, 71]


def test_t5_has_the_published_buckets() -> None:
    """Distance = query − key, the opposite sign of the paper's relative position."""
    expected = {0: 0, 15: 15, 18: 16, 20: 17, 100: 30, 113: 31, 128: 31, 5000: 31, -3: 0}
    assert T5().bucket(torch.tensor(list(expected))).tolist() == list(expected.values())


@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 20), (7, 64), (2, 3)])
def test_t5_buckets_are_transformers(buckets: int, max_distance: int) -> None:
    distance = torch.arange(-5, 400)
    theirs = T5Attention._relative_position_bucket(-distance, False, buckets, max_distance)
    assert T5(buckets=buckets, max_distance=max_distance).bucket(distance).tolist() == theirs.tolist()


def test_t5_has_one_table_for_all_layers() -> None:
    spec = zoo.load("small", n_layers=3, **{"block.mixer.position": "t5", "block.mixer.scale": 1.0})
    model = random_model(spec)
    shapes = {name: p.shape for name, p in model.named_parameters() if "positions" in name}
    assert shapes == {"positions.0.weight": (32, 4)}
    tokens = random_tokens(spec, 1, 12)
    before = model(tokens)
    model.positions["0"].weight.data[3] += 1
    assert not torch.allclose(model(tokens)[:, 3:], before[:, 3:])
    assert torch.equal(model(tokens)[:, :3], before[:, :3])


def test_t5_adds_to_each_score_its_bucket() -> None:
    """One layer's scores by loops."""
    spec = zoo.load("small", d_model=16, n_layers=1, **{"block.mixer.position": {"kind": "t5", "max_distance": 40}})
    model = random_model(spec)
    mixer, x = model.blocks[0].mixer, torch.randn(1, 30, 16, generator=torch.Generator().manual_seed(0))
    step = ForwardPass.of(x)
    step.shared = {spec.block.mixer.position.name_for(4): model.positions["0"]}
    table = model.positions["0"].weight.tolist()
    q, k, v = (project(x).view(30, 4, 4).transpose(0, 1) for project in (mixer.q, mixer.k, mixer.v))
    heads = []
    for h in range(4):
        rows = []
        for i in range(30):
            scores = [(q[h, i] @ k[h, j]).item() / 2 for j in range(i + 1)]
            for j in range(i + 1):
                far = 16 + math.floor(math.log(max(i - j, 16) / 16) / math.log(40 / 16) * 16)
                scores[j] += table[i - j if i - j < 16 else min(far, 31)][h]
            rows.append(torch.tensor(scores).softmax(0) @ v[h, : i + 1])
        heads.append(torch.stack(rows))
    expected = mixer.o(torch.cat(heads, dim=-1))
    torch.testing.assert_close(mixer(x, step)[0], expected, rtol=1e-4, atol=1e-5)


def test_alibi_slopes_of_12_heads() -> None:
    exponents = [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]
    assert ALiBi().slopes(12) == [2**-e for e in exponents]


@pytest.mark.parametrize("heads", HEADS)
def test_alibi_is_that_of_bloom_and_mpt_but_for_a_constant_per_row(heads: int) -> None:
    length = 40
    bloom = bloom_alibi(torch.ones(1, length), heads, torch.float32)
    mpt = mpt_alibi(heads, length, alibi_bias_max=8)
    for theirs in (bloom, mpt):
        assert_same_but_for_the_row(alibi(ALiBi(), heads, length), theirs, 1e-5)
    wider = mpt_alibi(heads, length, alibi_bias_max=5)
    assert_same_but_for_the_row(alibi(ALiBi(max_exponent=5), heads, length), wider, 1e-5)


@pytest.mark.parametrize("heads", HEADS)
def test_alibi_can_be_falcons(heads: int) -> None:
    """Its slopes are in bfloat16, and scaled with the scores; padding counts as place 0."""
    length, head_dim = 300, 9
    spec = ALiBi(rounded=True, scaled=True)
    theirs = falcon_alibi(torch.ones(1, length, dtype=torch.long), heads, torch.float32) / math.sqrt(head_dim)
    assert_same_but_for_the_row(alibi(spec, heads, length, head_dim), theirs, 1e-6)
    pads = torch.tensor([0, 7])
    mask = (torch.arange(length) >= pads[:, None]).long()
    padded = falcon_alibi(mask, heads, torch.float32).view(2, heads, 1, length) / math.sqrt(head_dim)
    assert_same_but_for_the_row(alibi(spec, heads, length, head_dim, pads), padded, 1e-6)


def alibi(
    spec: ALiBi, heads: int, length: int, head_dim: int = 4, left_pad: torch.Tensor | None = None
) -> torch.Tensor:
    step = ForwardPass.of(torch.zeros(1, length), 0, left_pad)
    bias = spec.build(head_dim, heads).bias(step, step.index)
    assert bias is not None
    return bias


def assert_same_but_for_the_row(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float) -> None:
    """Assert that earlier positions agree up to a constant per row; encoders, which BLOOM and MPT lack, see later
    ones."""
    difference = (ours - theirs).expand(*ours.shape[:-2], max(ours.shape[-2], theirs.shape[-2]), -1)
    rows, columns = difference.shape[-2:]
    later = torch.ones(rows, columns, dtype=torch.bool).triu(columns - rows + 1)
    spread = difference.masked_fill(later, -math.inf).amax(-1) - difference.masked_fill(later, math.inf).amin(-1)
    assert spread.max() <= tolerance * theirs.abs().max()


def test_the_fused_backend_takes_alibi_and_not_a_learned_bias() -> None:
    q, k, v = torch.randn(3, 2, 4, 9, 6, generator=torch.Generator().manual_seed(0)).unbind(0)
    index = torch.arange(9)
    visible = Visible(index, index)
    scoring = Scoring(0.4, bias=alibi(ALiBi(), 4, 9))
    with attention_backend("plain"):
        expected = attend(q, k, v, visible, scoring)
    with attention_backend("fused"):
        torch.testing.assert_close(attend(q, k, v, visible, scoring), expected)
        with pytest.raises(ValueError, match="learned bias"):
            attend(q, k, v, visible, Scoring(0.4, bias=torch.zeros(4, 9, 9, requires_grad=True)))


@pytest.mark.parametrize(
    ("position", "message"),
    [
        (
            {"kind": "t5", "buckets": 32, "max_distance": 16},
            r"^block\.mixer\.position\.max_distance: must be more than buckets // 2 = 16, not 16",
        ),
        ({"kind": "t5", "buckets": 1}, r"^block\.mixer\.position\.buckets"),
        ({"kind": "alibi", "max_exponent": 0}, r"^block\.mixer\.position\.max_exponent"),
    ],
)
def test_wrong_numbers_are_refused_by_name(position: dict[str, Any], message: str) -> None:
    with pytest.raises(zoo.SpecError, match=message):
        zoo.load("small", **{"block.mixer.position": position})
