"""Predictions of theory for a model at initialisation, seen by the probes. Nothing is trained."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

import zoo
from ablate.training.batch import Batch
from ablate.training.observing import Prober
from ablate.training.probes import ProbeSpec
from zoo.loss import IGNORED


def model_of(placement: str, layers: int, seed: int = 0) -> zoo.Decoder:
    """Xiong et al.'s model at toy width: LayerNorm with gains of one, ReLU, plain initialisation, a stream that starts
    at variance 1."""
    block = {"norm": "layernorm", "norm_placement": placement, "ffn": {"kind": "relu", "d_ff": "4x"}}
    spec = {"d_model": 64, "n_layers": layers, "vocab_size": 64, "embedding_scale": "sqrt_d_model", "block": block}
    return zoo.build(zoo.parse({**spec, "init": {"output": "plain", "tied_head": None}}), seed)


def readings(model: zoo.Decoder, probe: str, seed: int = 0) -> dict[tuple[int | None, str], float]:
    """A probe's readings on random tokens, where the loss is that of the last one, as in the theorem.

    Averaged over the tokens of a text, a gradient grows with the likeness of their activations, which depth changes.
    """
    window = torch.randint(64, (1, 17), generator=torch.Generator().manual_seed(seed))
    targets = torch.full((1, 16), IGNORED)
    targets[0, -1] = window[0, -1]
    batch = Batch(window[:, :-1], targets)
    model.loss(batch.tokens, batch.targets)[0].backward()
    found: list[Any] = []
    with Prober(model, ProbeSpec(which=(probe,)), 1, nullcontext, found.extend).around(1, batch):
        pass
    return {(record.layer, record.name): record.value for record in found}


@pytest.mark.parametrize(("placement", "slope", "within"), [("post", 0.0, 0.06), ("pre", -0.5, 0.12)])
def test_the_last_gradient_is_flat_in_depth_under_post_norm_and_falls_under_pre_norm(
    placement: str, slope: float, within: float
) -> None:
    """Xiong et al. 2020, Theorem 1: O(1) against O(1/√L) for the second matrix of the last FFN, at initialisation."""
    depths = (4, 8, 16, 32)
    norms = [
        [readings(model_of(placement, n, seed), "gradient_norm", seed)[n - 1, "ffn.output"] for n in depths]
        for seed in range(5)
    ]
    slopes = np.polyfit(np.log(depths), np.log(norms).T, 1)[0]
    assert slopes.mean() == pytest.approx(slope, abs=within)


def variances(placement: str, gain: float) -> list[float]:
    """Variance of the activations by layer, with projections onto the stream `gain` times as large."""
    model = model_of(placement, 8)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if zoo.roles(model)[name] == "output":
                parameter.mul_(gain)
    found = readings(model, "activation_variance")
    return [found[layer, "variance"] for layer in range(8)]


@pytest.mark.parametrize("placement", ["double", "peri", "output"])
def test_a_norm_on_the_branches_output_bounds_the_stream_whatever_the_weights(placement: str) -> None:
    """An update has variance 1, and the deviation of a sum is at most the sum of deviations."""
    start = max(1.0, float(model_of(placement, 8).embedding.weight.detach().norm(dim=-1).max()))
    for layer, value in enumerate(variances(placement, 100.0)):
        assert value < (start + 2 * (layer + 1)) ** 2


def test_post_norm_s_stream_has_variance_one_after_every_block_and_pre_norm_s_follows_the_weights() -> None:
    assert variances("post", 100.0) == pytest.approx([1.0] * 8, rel=1e-3)
    assert variances("pre", 100.0)[0] == pytest.approx(1e4 * variances("pre", 1.0)[0], rel=0.7)
    assert variances("pre", 1.0) == sorted(variances("pre", 1.0))
