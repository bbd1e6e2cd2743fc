"""Benchmarks of reading and writing, for pytest-benchmark."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import zoo
from zoo.model import Decoder

CONTEXT = 128


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return zoo.build(zoo.load("small", d_model=64, n_layers=2)).eval()


@pytest.mark.parametrize("batch", [1, 8])
def test_prefill(benchmark: Any, decoder: Decoder, batch: int) -> None:
    tokens = torch.randint(256, (batch, CONTEXT))
    with torch.inference_mode():
        logits = benchmark(lambda: decoder(tokens, decoder.new_cache(batch=batch, capacity=CONTEXT)))
    assert logits.shape == (batch, CONTEXT, 256)


@pytest.mark.parametrize("batch", [1, 8])
def test_decode(benchmark: Any, decoder: Decoder, batch: int) -> None:
    """One token per row, from a cache of CONTEXT tokens."""
    filled = decoder.new_cache(batch=batch, capacity=CONTEXT + 1)
    token = torch.randint(256, (batch, 1))
    with torch.inference_mode():
        decoder(torch.randint(256, (batch, CONTEXT)), filled)
        logits = benchmark.pedantic(
            decoder, setup=lambda: ((token, copy.deepcopy(filled)), {}), rounds=50, warmup_rounds=3
        )
    assert logits.shape == (batch, 1, 256)
