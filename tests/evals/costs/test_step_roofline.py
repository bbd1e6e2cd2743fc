"""The roofline of a training step against a count by hand, and against torch's own compiler."""

from __future__ import annotations

from itertools import product

import pytest

import ablate
import zoo
from ablate.cli import main
from ablate.training.spec import TrainSpec
from ablate.training.step_work import step_work
from evals.costs.devices import device
from evals.costs.step_roofline import SECONDS_PER_LAUNCH, StepBound, step_seconds
from zoo.loss import LOGITS_AT_ONCE

SHAPES = (
    (256, 6, 8192, 512, 64),
    (384, 8, 8192, 1024, 64),
    (512, 3, 16384, 1024, 64),
    (768, 3, 32768, 1024, 64),
    (128, 4, 512, 128, 16),
    (256, 2, 512, 2048, 16),
    (1024, 2, 8192, 512, 16),
    (2048, 2, 32768, 1024, 16),
    (64, 8, 1024, 128, 4),
    (4096, 1, 8192, 512, 32),
)
"""d_model, layers, vocabulary, context, batch."""


def by_hand(d: int, layers: int, vocabulary: int, context: int, batch: int) -> tuple[float, float, float]:
    """FLOPs, bytes of products and other bytes of a compiled step of pre-norm attention and SwiGLU, as somebody counts
    who knows what has to be moved: the stream and its gradient in float32, what products read and write in bfloat16."""
    n, f = batch * context, zoo.load("small", d_model=d).layers[0].ffn.d_ff
    weights = layers * (4 * d * d + 3 * d * f)
    twice = n * vocabulary > LOGITS_AT_ONCE  # logits that are not held are computed again
    flops = 6 * n * (weights + d * vocabulary) + layers * 7 * batch * context**2 * d  # a triangle of scores, 7 products
    flops += twice * 2 * n * d * vocabulary

    def linear(inner: int, outer: int) -> float:
        return 3 * 2 * (n * inner + n * outer + inner * outer)

    products = layers * (4 * linear(d, d) + 2 * linear(d, f) + linear(f, d) + 24 * n * d) + (1 + twice / 3) * linear(
        d, vocabulary
    )
    norms = (12 + 12) * n * d + (20 + 18) * n * d + 2 * 8 * n * d  # forward, backward, and the gains' gradients
    rope, gate = 2 * 8 * n * d, (6 + 10) * n * f
    ends = (6 + 2 * twice) * n * vocabulary + 8 * n * d + 4 * vocabulary * d
    parameters = weights + vocabulary * d
    return flops, products, layers * (norms + rope + gate) + ends + (12 + 40) * parameters


KERNELS = 21 + 4 + 14 + 6 + 4 + 3
"""Of a layer: products, attention, casts of weights and of their gradients, norms, RoPE, gates."""


def roofline(name: str, shape: tuple[int, int, int, int, int]) -> tuple[float, StepBound]:
    sheet = device(name)
    flops, products, other = by_hand(*shape)
    bandwidth = sheet.bandwidth_share * sheet.bandwidth_bytes_per_second
    computing = flops / (sheet.compute_share * sheet.flops_per_second["bfloat16"])
    host = (30 + KERNELS * shape[1]) * SECONDS_PER_LAUNCH[True]
    parts: dict[StepBound, float] = {"products": computing, "memory": (products + other) / bandwidth, "launches": host}
    return max(host, other / bandwidth + max(computing, products / bandwidth)), max(parts, key=lambda part: parts[part])


@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_takes_what_a_count_by_hand_says(shape: tuple[int, int, int, int, int]) -> None:
    """To within 30 %, on a fast device and a slow one."""
    d, layers, vocabulary, context, batch = shape
    heads = max(1, d // 64)
    spec = zoo.load("small", d_model=d, n_layers=layers, vocab_size=vocabulary, **{"block.mixer.heads": heads})
    train = TrainSpec(context=context, batch=batch, dtype="bfloat16", compile=True)
    found = step_work(spec, train)
    assert found is not None and found.attention == "fused"
    flops, products, other = by_hand(*shape)
    assert found.work.flops == pytest.approx(flops, rel=0.01)
    assert found.work.product_bytes == pytest.approx(products, rel=0.1)
    for name in ("h100", "rtx4090"):
        predicted = step_seconds(found.work, device(name), "bfloat16", compiled=True)
        seconds, bound = roofline(name, shape)
        assert predicted.seconds == pytest.approx(seconds, rel=0.3), (predicted, seconds, other)
        assert predicted.bound == bound


def test_the_bounds_are_three() -> None:
    """Large products, small steps, and long vocabularies."""
    bounds = set()
    for (d, layers, vocabulary, context, batch), name in product((SHAPES[0], SHAPES[8], SHAPES[9]), ("h100",)):
        spec = zoo.load("small", d_model=d, n_layers=layers, vocab_size=vocabulary)
        found = step_work(spec, TrainSpec(context=context, batch=batch, dtype="bfloat16", compile=True))
        assert found is not None
        bounds.add(step_seconds(found.work, device(name), "bfloat16", compiled=True).bound)
    assert bounds == {"memory", "launches", "products"}


def test_a_laptop_says_which_scale_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "norm_placement", "--on", "h100", "--scale", "gpu-minutes", "--hours", "1"]) == 0
    shown = capsys.readouterr().out
    assert "memory" in shown and "scale gpu-minutes" in shown and "not measured" in shown
    assert main(["plan", "norm_placement", "--on", "h999"]) == 2
    assert "h100" in capsys.readouterr().err
    assert main(["plan", "norm_placement", "--hours", "8"]) == 2


def test_a_slower_device_takes_longer_and_a_longer_study_more_hours() -> None:
    fast, slow = (ablate.plan_on("norm_placement", name, scale="gpu-minutes") for name in ("h100", "rtx4090"))
    assert fast.seconds < slow.seconds
    more = ablate.plan_on("norm_placement", "h100", scale="gpu-minutes", sets={"seeds": 6})
    assert more.seconds > fast.seconds + 9 * min(arm.run_seconds for arm in fast.arms) * 0.99
