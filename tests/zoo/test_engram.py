"""Hashed n-gram memory: against a loop over tokens written from the authors' demonstration, and transformers."""

from __future__ import annotations

import math
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpTextConfig, Qwen4ExpTextPLELayer

import zoo
from tests.zoo.slow import close, layer_of, random_stream, rms
from zoo.conformance.combinations import random_model, random_tokens
from zoo.costs_decoding import decode_cost
from zoo.mixers.engram import Engram
from zoo.site import ForwardPass

D, T = 10, 9
SMALL = {"rows": 11, "features": 6, "hashes": 2}
IDS = torch.tensor([[5, 0, 7, 7, 5, 0, 7, 60, 1]])


def is_prime(n: int) -> bool:
    return n > 1 and not any(n % by == 0 for by in range(2, n))


def slow_rows(spec: Any, factors: list[int], ids: list[int], t: int) -> list[int]:
    """Row of each table, by numbers of any size: 2-grams with K hashes, then 3-grams …"""
    sizes = [n for n in range(spec.rows, 1000) if is_prime(n)]
    rows, first = [], 0
    for n in range(2, spec.max_ngram + 1):
        mixed = 0
        for back in range(n):
            mixed ^= factors[back] * (ids[t - back] + 1 if t >= back else 0)
        for _ in range(spec.hashes):
            size = sizes.pop(0)
            rows.append(first + mixed % size)
            first += size
    return rows


def slow(layer: Any, ids: list[int], x: Tensor) -> Tensor:
    """x: (T, D), what the block's norm gives, → (T, D)."""
    spec, values = layer.spec, []
    for t in range(len(x)):
        e = torch.cat([layer.table[row] for row in slow_rows(spec, layer.factors, ids, t)])
        key = rms(layer.k.weight @ e, layer.k_norm.gain, spec.norm.eps)
        q = (x[t] @ key).item() / math.sqrt(x.shape[1])
        root = math.copysign(math.sqrt(abs(q)), q)
        values.append(layer.v.weight @ e / (1 + math.exp(-root)))
    if spec.conv is None:
        return torch.stack(values)
    out = []
    normed = [rms(value, layer.conv_norm.gain, spec.norm.eps) for value in values]
    for t, value in enumerate(values):
        near = torch.zeros_like(value)
        for back in range(spec.conv):
            if t >= back * spec.max_ngram:
                near += layer.conv.weight[:, -1 - back] * normed[t - back * spec.max_ngram]
        out.append(value + near / (1 + (-near).exp()))
    return torch.stack(out)


def step_of(ids: Tensor, start: int = 0) -> ForwardPass:
    return ForwardPass.of(ids, start=start)


@pytest.mark.parametrize(
    "edit",
    [{}, {"max_ngram": 2, "conv": None}, {"max_ngram": 4, "hashes": 3, "conv": 2, "seed": 5}],
    ids=["default", "2-grams without a convolution", "4-grams"],
)
def test_a_token_reads_the_rows_that_hashes_of_its_last_tokens_choose(edit: dict[str, Any]) -> None:
    layer: Any = layer_of(Engram(**{**SMALL, **edit}), D)
    x = random_stream(T, D)
    with torch.no_grad():
        expected = slow(layer, IDS[0].tolist(), x[0])
        close(layer(x, step_of(IDS))[0], expected)
        cache, found = layer.new_cache(1, T, torch.float64), []
        for start, length in ((0, 1), (1, 4), (5, 1), (6, 3)):
            part = slice(start, start + length)
            found.append(layer(x[:, part], step_of(IDS[:, part], start), cache)[0])
        close(torch.cat(found), expected)


def test_the_gate_and_the_convolution_are_those_of_qwen() -> None:
    """Of the first of two streams, each of which has a key of its own there. The lookup is replaced by ours."""
    layer: Any = layer_of(Engram(**SMALL), D).float()
    config = Qwen4ExpTextConfig(
        hidden_size=D, hc_count=2, ple_embed_dim=12, ngram_size=3, heads_per_ngram=2, ple_conv_kernel_size=4,
        ngram_vocab_size_base=11, rms_norm_eps=1e-6, vocab_size=61, eos_token_id=1,
    )  # fmt: skip
    theirs, streams = Qwen4ExpTextPLELayer(config, 0, 0), random_stream(T, 2 * D).float()
    with torch.no_grad():
        theirs.key_proj.weight[:D] = layer.k.weight
        theirs.value_proj.weight.copy_(layer.v.weight)
        theirs.conv1d.weight[:D] = layer.conv.weight[:, None]
        theirs.norm_key.weight[:D] = layer.k_norm.gain - 1
        theirs.norm_conv.weight[:D] = layer.conv_norm.gain - 1
        looked_up = layer.table[layer.rows(step_of(IDS), None)].flatten(2)
        with patch.object(theirs.ple_embedding, "forward", lambda *_: looked_up):
            expected = theirs(streams, IDS, None)[..., :D]
        found = layer(theirs.norm_query(streams)[..., :D], step_of(IDS))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_hashes_of_layers_differ_and_spread_n_grams_evenly() -> None:
    first, second = (layer_of(Engram(rows=97, features=4, hashes=2), D, layer=layer) for layer in (0, 1))
    assert first.factors != second.factors
    ids = torch.randint(0, 50_000, (1, 20_000), generator=torch.Generator().manual_seed(0))
    rows = first.rows(step_of(ids), None)[0]  # type: ignore[operator]
    start = 0
    for table, size in enumerate((97, 101, 103, 107)):
        counts = (rows[:, table] - start).bincount(minlength=size)
        assert len(counts) == size
        assert ((counts / 20_000 * size - 1).abs() < 0.4).all()
        start += size


def test_the_same_n_gram_reads_the_same_rows_wherever_it_stands() -> None:
    layer: Any = layer_of(Engram(**SMALL), D)
    rows = layer.rows(step_of(IDS), None)[0]
    assert torch.equal(rows[2], rows[6])  # 5 0 7 both times
    assert torch.equal(rows[0, :2] == rows[4, :2], torch.tensor([False, False])), "the first 5 has no token before it"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_cache_of_any_type_holds_ids_exactly(dtype: torch.dtype) -> None:
    layer: Any = layer_of(Engram(**SMALL, conv=None), D).float()
    ids = torch.tensor([[0, 255, 256, 65_535, 200_003, 5_000_000]])
    whole = layer.rows(step_of(ids), None)
    cache = layer.new_cache(1, 6, dtype)
    parts = [layer.rows(step_of(ids[:, t : t + 1], t), cache) for t in range(6)]
    assert torch.equal(torch.cat(parts, dim=1), whole)


def memory(**edits: Any) -> zoo.ModelSpec:
    blocks = {"memory": {"mixer": {"kind": "engram", **SMALL}, "ffn": "none"}}
    return zoo.load("small", d_model=16, n_layers=3, blocks=blocks, pattern=["memory", "block", "block"], **edits)


def test_a_token_uses_few_of_the_parameters_and_no_flops_of_the_tables() -> None:
    small, large = (zoo.cost(memory(**{"blocks.memory.mixer.rows": rows})) for rows in (11, 101))
    more = 3 * (101 + 103 + 107 + 109 - 11 - 13 - 17 - 19)
    assert large.params - small.params == more
    assert (large.params_active, large.flops_per_token) == (small.params_active, small.flops_per_token)
    read = decode_cost(large.spec, 2, 9).parameters - decode_cost(small.spec, 2, 9).parameters
    assert read == 0, "two tokens look up two rows of every table"


def test_a_memory_is_a_layer_of_its_own_before_another() -> None:
    """x + Engram(norm(x)), and in a model the n-grams are those of the tokens."""
    model: Any = random_model(memory()).double()
    tokens = random_tokens(model.spec, 1, T)
    x, block = random_stream(T, 16), model.blocks[0]
    with torch.no_grad():
        expected = x[0] + slow(block.mixer, tokens[0].tolist(), block.mixer_residual.norm_in(x)[0])
        close(block(x, step_of(tokens))[0], expected)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"features": 5}, "features: 2 hashes do not divide 5 features"),
        ({"width": 12}, r"width: must equal d_model \(16\), not 12"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(edit: dict[str, Any], message: str) -> None:
    with pytest.raises(zoo.SpecError, match=message):
        Engram(**{**SMALL, **edit}).resolve(16)


def test_tokens_that_leave_layers_take_n_grams_apart() -> None:
    with pytest.raises(zoo.SpecError, match=r"engram\) needs every token in every block"):
        memory(**{"blocks.memory.depth_routing": {}})
