"""Predictions of `plan --on` against a plain decoder, whose step torch's compiler fuses and whose FLOPs torch counts.

Nothing of the count is ours: the model has none of the zoo's modules, and the bytes are those that inductor's scheduler
says its kernels move (`compiler_count`). The roofline is written out once more.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import ablate
from ablate.cli import main
from ablate.wings.foretell.roofline import SLOWER, StepBound
from evals.costs.devices import Device, device
from tests.evals.costs.compiler_count import Counted, count
from tests.evals.costs.plain_decoder import Shape
from zoo.loss import LOGITS_AT_ONCE

QUICK = (
    Shape(d=128, layers=2, vocabulary=512, context=128, batch=8, heads=2, kv_heads=1, d_ff=344, window=32),
    Shape(d=512, layers=1, vocabulary=2048, context=512, batch=32, heads=8, kv_heads=8, d_ff=704, experts=8),
    Shape(d=4096, layers=1, vocabulary=8192, context=512, batch=32, heads=32, kv_heads=8, d_ff=11008),
)
SLOW = (
    Shape(d=256, layers=1, vocabulary=8192, context=512, batch=64, heads=4, kv_heads=4, d_ff=704),
    Shape(d=256, layers=6, vocabulary=8192, context=512, batch=64, heads=4, kv_heads=4, d_ff=704),  # gpu-minutes
    Shape(d=384, layers=8, vocabulary=8192, context=1024, batch=64, heads=6, kv_heads=6, d_ff=1024),  # gpu-hour
    Shape(d=384, layers=2, vocabulary=8192, context=1024, batch=64, heads=6, kv_heads=2, d_ff=1024),
    Shape(d=512, layers=3, vocabulary=16384, context=1024, batch=32, heads=8, kv_heads=8, d_ff=1376, window=256),
    Shape(d=256, layers=2, vocabulary=512, context=2048, batch=16, heads=4, kv_heads=1, d_ff=704, window=512),
    Shape(d=64, layers=8, vocabulary=1024, context=128, batch=4, heads=2, kv_heads=2, d_ff=176),
    Shape(d=1024, layers=2, vocabulary=8192, context=512, batch=16, heads=16, kv_heads=4, d_ff=2752),
    Shape(d=2048, layers=1, vocabulary=32768, context=1024, batch=16, heads=16, kv_heads=16, d_ff=5504),
    Shape(d=768, layers=3, vocabulary=32768, context=1024, batch=64, heads=12, kv_heads=4, d_ff=2048),
    Shape(d=256, layers=4, vocabulary=1024, context=512, batch=16, heads=4, kv_heads=2, d_ff=352, experts=16, top_k=4),
)
SECONDS_PER_KERNEL = 4e-6


def study_of(shape: Shape) -> dict[str, Any]:
    """The same model as a study: its second arm differs in a rate."""
    experts = {"kind": "topk_moe", "experts": shape.experts, "top_k": shape.top_k}
    base = {"preset": "small", "d_model": shape.d, "n_layers": shape.layers, "block.mixer.heads": shape.heads}
    base |= {"block.mixer.kv_heads": shape.kv_heads, "block.mixer.window": shape.window}
    base |= {"block.ffn": {**(experts if shape.experts else {"kind": "swiglu"}), "d_ff": shape.d_ff}}
    return {
        "question": "What does a step take?",
        "baseline": "plain",
        "base": base,
        "arms": {"other": {"train.lr": 2e-3}},
        "data": {"source": "stdlib", "tokenizer": {"kind": "bpe", "vocab_size": shape.vocabulary}},
        "train": {"context": shape.context, "batch": shape.batch, "dtype": "bfloat16", "compile": True, "lr": 1e-3},
        "tune": "off",
        "budget": {"tokens": 1e6},
        "seeds": 1,
    }


@cache
def counted(shape: Shape) -> Counted:
    return count(shape)


def computed_again(shape: Shape) -> float:
    """FLOPs of logits that training does not hold, and computes once more in the backward pass."""
    logits = shape.batch * shape.context * shape.vocabulary
    return 2.0 * logits * shape.d if logits > LOGITS_AT_ONCE else 0.0


def roofline(shape: Shape, sheet: Device) -> tuple[float, dict[StepBound, float]]:
    """Seconds of a compiled step, and what each of its parts would take alone."""
    found, bandwidth = counted(shape), sheet.bandwidth_share * sheet.bandwidth_bytes_per_second
    products = found.flops / (sheet.compute_share * sheet.flops_per_second["bfloat16"])
    launches = found.kernels * SECONDS_PER_KERNEL
    memory = (found.product_bytes + found.other_bytes) / bandwidth
    busy = found.other_bytes / bandwidth + max(products, found.product_bytes / bandwidth)
    return max(launches, SLOWER[True] * busy), {"products": products, "memory": memory, "launches": launches}


@pytest.mark.parametrize(
    "shape", [QUICK[0], *(pytest.param(shape, marks=pytest.mark.slow) for shape in (*QUICK[1:], *SLOW))]
)
def test_a_step_takes_what_the_compiler_and_the_roofline_say(shape: Shape) -> None:
    """To within 30 %, and bound by the same part, on a fast device and a slow one."""
    for name in ("h100", "rtx4090"):
        arm, _ = ablate.plan_on(study_of(shape), name).arms
        assert arm.work is not None and arm.step is not None
        assert arm.work.work.flops == pytest.approx(counted(shape).flops + computed_again(shape), rel=0.005)
        seconds, parts = roofline(shape, device(name))
        assert arm.step.seconds == pytest.approx(seconds, rel=0.3), (arm.work.work, counted(shape))
        assert arm.step.bound == max(parts, key=lambda part: parts[part]), (arm.step, parts)


def test_the_bounds_are_three() -> None:
    """Large products, small steps, and long vocabularies."""
    found = [ablate.plan_on(study_of(shape), "h100").arms[0].step for shape in QUICK]
    assert {step.bound for step in found if step} == {"memory", "launches", "products"}


def test_a_laptop_says_which_scale_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "norm_placement", "--on", "h100", "--scale", "gpu-minutes", "--hours", "1"]) == 0
    shown = capsys.readouterr().out
    assert "memory" in shown and "scale gpu-minutes" in shown and "not measured" in shown and "no scale" not in shown
    assert main(["plan", "norm_placement", "--on", "h100", "--scale", "gpu-minutes", "--hours", "0.001"]) == 0
    assert "no scale fits in the given hours; showing the shortest, gpu-minutes\n" in capsys.readouterr().out
    assert main(["plan", "norm_placement", "--on", "h999"]) == 2
    assert "h100" in capsys.readouterr().err
    assert main(["plan", "norm_placement", "--hours", "8"]) == 2


def test_a_slower_device_takes_longer_and_a_longer_study_more_hours() -> None:
    fast, slow = (ablate.plan_on("norm_placement", name, scale="gpu-minutes") for name in ("h100", "rtx4090"))
    assert fast.seconds < slow.seconds
    more = ablate.plan_on("norm_placement", "h100", scale="gpu-minutes", sets={"seeds": 6})
    assert more.seconds > fast.seconds + 9 * min(arm.run_seconds for arm in fast.arms) * 0.99
