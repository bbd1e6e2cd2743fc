"""Predictions of what fits, against what is allocated."""

from __future__ import annotations

import pytest
import torch

import zoo
from ablate.wings.foretell.roofline import fit
from zoo.model import Decoder

MODELS = {
    "attention": {"block.mixer.kv_heads": 2},
    "window": {"block.mixer.window": 24},
    "mla": {"block.mixer": {"kind": "mla", "kv_rank": 16, "nope_dim": 8, "rope_dim": 8}},
    "state": {"block.mixer": "gated_deltanet"},
    "hybrid": {"blocks": {"state": {"mixer": "mamba2"}}, "pattern": ["state", "block"]},
}


def allocated(model: Decoder, batch: int, context: int) -> int:
    """Bytes of the weights and of a cache, as torch has them."""
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    return weights + (model.new_cache(batch, context).nbytes if batch and context else 0)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("megabytes", [0.5, 3.0])
def test_the_largest_batch_fits_and_one_more_does_not(name: str, megabytes: float) -> None:
    model = zoo.build(zoo.load("small", d_model=32, n_layers=2, vocab_size=256, **MODELS[name]))
    memory = megabytes * 1e6
    found = fit(model.spec, memory, contexts=(16, 64), batch=2, dtype="float32", share=1.0)
    assert found.weight_bytes == allocated(model, 0, 0)
    for context, batch in found.batches.items():
        assert batch is not None
        assert allocated(model, batch, context) <= memory < allocated(model, batch + 1, context)
    if found.largest_context is not None:
        longest = found.largest_context
        assert allocated(model, 2, longest) <= memory < allocated(model, 2, longest + 1)


def test_where_weights_do_not_fit_nothing_does() -> None:
    spec = zoo.load("small", d_model=64, n_layers=2)
    found = fit(spec, 1e4, contexts=(8,), dtype="bfloat16")
    assert (found.batches, found.largest_context) == ({8: 0}, 0)


def test_no_batch_reads_past_the_end_of_positions() -> None:
    spec = zoo.load("small", **{"block.mixer.position": {"kind": "learned", "length": 128}})
    found = fit(spec, 1e9, contexts=(128, 129), dtype="float32")
    assert found.batches[129] is None
    assert found.batches[128] > 0
    assert found.largest_context == 128


@pytest.mark.gpu
def test_on_cuda_the_largest_batch_decodes_and_a_quarter_more_does_not() -> None:
    """With the device's memory limited to 2 GiB, of which the allocator may waste a little."""
    limit = 2**31
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(limit / total)
    try:
        model = zoo.build(zoo.load("small", d_model=512, n_layers=8, vocab_size=4096)).to("cuda", torch.bfloat16).eval()
        batch = fit(model.spec, limit, contexts=(2048,), dtype="bfloat16").batches[2048]
        assert batch is not None
        tokens = torch.zeros(batch, 1, dtype=torch.long, device="cuda")
        with torch.inference_mode():
            model(tokens, model.new_cache(batch, 2048))
            torch.cuda.empty_cache()
            with pytest.raises(torch.OutOfMemoryError):
                model.new_cache(batch * 5 // 4, 2048)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
