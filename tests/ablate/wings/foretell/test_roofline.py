"""The roofline against published sizes, hand arithmetic and simulation. Nothing is built at full size."""

from __future__ import annotations

import random

import pytest

import zoo
from ablate.wings.foretell.roofline import PredictedPhase, predict
from ablate.wings.foretell.this_machine import this_device
from evals.costs import devices
from evals.costs.devices import Device, DeviceError, device
from evals.costs.peaks import copy_bytes_per_second
from zoo.costs_decoding import decode_cost

IDEAL = Device(
    name="ideal",
    title="an ideal device",
    source="this test",
    memory_bytes=10**11,
    bandwidth_bytes_per_second=1e12,
    flops_per_second={"bfloat16": 1e15, "float32": 1e14},
    compute_share=1.0,
    bandwidth_share=1.0,
    memory_share=1.0,
    shares_source="this test",
)


def test_llama_3_70b_has_its_published_weights_and_cache() -> None:
    """Model card: 70.6B; 80 layers of 8 kv heads of 128 features, keys and values, in two bytes: 320 KiB per token."""
    found = predict(zoo.load("llama3-70b"), device("h200"), context=131072)
    assert found.weight_bytes == pytest.approx(141.2e9, rel=1e-3)
    assert found.cache_bytes == 131072 * 320 * 1024
    assert found.devices == 2


def test_deepseek_v3_caches_a_latent() -> None:
    """61 layers of 512 + 64 numbers in two bytes: 70,272 bytes per token (arXiv:2412.19437, section 4.2)."""
    found = predict(zoo.load("deepseek_v3"), device("h200"), context=1000, batch=3)
    assert found.cache_bytes == 3 * 1000 * 70272


def test_decoding_llama_3_8b_takes_what_reading_it_takes() -> None:
    """The prediction equals a count by hand: every weight but the token table, 8.03B less 128,256 × 4,096 and one row
    of it, in two bytes, and 1,024 tokens of 128 KiB (32 layers × 2 × 8 × 128 × 2 bytes), at 69 % of 3.35 TB/s."""
    read = 2 * (8_030_261_248 - 128_256 * 4096 + 4096) + 1024 * 131_072
    found = predict(zoo.load("llama3-8b"), device("h100"), context=1024)
    assert found.decode.bytes == read
    assert found.decode.seconds == pytest.approx(read / (0.69 * 3.35e12), rel=1e-12)
    assert found.decode.bound == "memory"
    assert found.tokens_per_second == pytest.approx(1 / found.decode.seconds)


def test_prefilling_llama_3_8b_takes_what_computing_it_takes() -> None:
    """The prediction equals a count by hand: two FLOPs for each weight that multiplies, the head for the last token
    only, and 4 × 32 × 128 FLOPs in 32 layers for each of the T (T + 1) / 2 pairs that the mask lets through, at 60 % of
    989.5 TFLOP/s."""
    tokens, d, f = 4096, 4096, 14336
    layer = 2 * d * d + 2 * d * 1024 + 3 * d * f
    flops = 2 * 32 * layer * tokens + 2 * 128_256 * d + 4 * 32 * 128 * 32 * tokens * (tokens + 1) / 2
    found = predict(zoo.load("llama3-8b"), device("h100"), context=tokens)
    assert found.prefill.flops == pytest.approx(flops, rel=1e-12)
    assert found.prefill.seconds == pytest.approx(flops / (0.6 * 989.5e12), rel=1e-12)
    assert found.prefill.bound == "compute"


def test_windows_are_read_and_nothing_beyond_them() -> None:
    """Gemma 3 27B: of 62 layers 10 are global, and 52 read their window of 1,024, each 2 × 16 × 128 numbers."""
    spec, context = zoo.load("gemma3-27b"), 32768
    assert sum(layer.mixer.window is None for layer in spec.layers) == 10
    tokens = 10 * context + 52 * 1024
    work = decode_cost(spec, 1, context)
    assert work.cache_elements == tokens * 2 * 16 * 128
    assert work.flops - decode_cost(spec, 1, 1).flops == (tokens - 62) * 4 * 32 * 128


@pytest.mark.parametrize("batch", [1, 2, 4, 16])
def test_the_experts_that_a_batch_touches_are_those_that_a_simulation_finds(batch: int) -> None:
    """Mixtral: 2 of 8 experts per token, at random; a layer's experts have 3 × 4,096 × 14,336 weights each."""
    spec = zoo.load("mixtral_8x7b")
    expert = 3 * 4096 * 14336
    whole = decode_cost(spec, 10**6, 1).parameters - 32000 * 4096 + batch * 4096  # of a batch that touches all
    touched = 8 - (whole - decode_cost(spec, batch, 1).parameters) / (32 * expert)
    draw, rounds = random.Random(0), 20_000
    found = [len({e for _ in range(batch) for e in draw.sample(range(8), 2)}) for _ in range(rounds)]
    assert touched == pytest.approx(sum(found) / rounds, abs=0.03)
    assert batch > 1 or touched == 2


def test_one_token_reads_the_active_parameters() -> None:
    spec = zoo.load("qwen3-235b-a22b")
    table = spec.vocab_size * spec.d_model
    assert decode_cost(spec, 1, 1).parameters == zoo.cost(spec).params_active - table + spec.d_model


def test_a_tied_table_is_read_whole_and_an_untied_one_by_rows() -> None:
    edits = {"d_model": 64, "vocab_size": 1000}
    tied, untied = (decode_cost(zoo.load("small", tie_embeddings=tie, **edits), 3, 8) for tie in (True, False))
    assert untied.parameters - tied.parameters == 3 * 64
    assert untied.flops == tied.flops


def test_large_batches_are_bound_by_compute() -> None:
    spec = zoo.load("llama3-8b")
    bounds = [predict(spec, device("h200"), context=128, batch=2**k).decode.bound for k in range(14)]
    assert (bounds[0], bounds[-1]) == ("memory", "compute")
    assert bounds == sorted(bounds, reverse=True)


def test_what_is_said_to_fit_fits_and_one_more_does_not() -> None:
    spec, free = zoo.load("llama3-8b"), 10**11 - 2 * 8_030_261_248
    found = predict(spec, IDEAL, context=1000, batch=7)
    assert found.largest_batch == free // (1000 * 131_072)
    assert found.largest_context == free // (7 * 131_072)
    windowed = zoo.load("llama3-8b", **{"block.mixer.window": 128})
    assert predict(windowed, IDEAL, context=1000).largest_context is None
    assert predict(zoo.load("llama3-70b"), IDEAL, context=1).largest_batch == 0
    assert predict(zoo.load("llama3-70b"), IDEAL, context=1).largest_context == 0
    assert predict(zoo.load("gpt2"), IDEAL, context=10).largest_context == 1024


def test_learned_positions_end() -> None:
    with pytest.raises(zoo.SpecError, match="context: the model reads at most 1024 tokens, not 1025"):
        predict(zoo.load("gpt2-small"), IDEAL, context=1025)


def test_a_type_without_a_rate_is_refused() -> None:
    with pytest.raises(DeviceError, match="ideal has no FLOP/s for float16"):
        predict(zoo.load("gpt2-small"), IDEAL, context=8, dtype="float16")


def test_overhead_adds_to_the_larger_of_compute_and_memory() -> None:
    slow = IDEAL.model_copy(update={"overhead_seconds_per_layer": 1e-3})
    spec = zoo.load("gpt2-small")
    fast, found = (predict(spec, on, context=8).decode for on in (IDEAL, slow))
    assert found.seconds == pytest.approx(fast.seconds + 12e-3)
    assert (fast.bound, found.bound) == ("memory", "overhead")
    assert PredictedPhase(1, 1, 2.0, 3.0, 0.5).seconds == 3.5


@pytest.mark.parametrize("name", devices.names())
def test_a_device_is_plausible_and_names_its_source(name: str) -> None:
    """Ridge points of all accelerators since 2020 are between 100 and 450 FLOPs per byte; sparse rates double them."""
    found = device(name)
    assert found.source.startswith("https://")
    assert 100 < found.flops_per_second["bfloat16"] / found.bandwidth_bytes_per_second < 450
    title = [int(word) for word in found.title.split() if word.isdigit() and found.title.endswith(f"{word} GB")]
    for gigabytes in title:
        assert found.memory_bytes == pytest.approx(gigabytes * 2**30, rel=0.07)


def test_a_mistyped_device_suggests_one() -> None:
    with pytest.raises(DeviceError, match=r"unknown device 'h20' \(did you mean 'h200'\?\)"):
        device("h20")


def test_this_machine_is_measured() -> None:
    """Within what a shared machine allows: one copy of another size, timed here, is not faster than the ceiling."""
    found = this_device("float32")
    again = copy_bytes_per_second("cpu")
    assert 0.1 < found.bandwidth_bytes_per_second / again < 10
    assert 1e-6 < found.overhead_seconds_per_layer < 0.1
    assert 1e9 < found.flops_per_second["float32"] < 1e14
    assert found.compute_share == 1
    assert 0.01 < found.bandwidth_share <= 1
