"""Optimizers against other people's packages of the same ones: the same parameters after some steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import lion_pytorch
import pytest
import pytorch_optimizer
import torch

from ablate.training.optimizers import Optimizer
from ablate.training.optimizers.lion import Lion
from ablate.training.optimizers.muon import Muon
from ablate.training.optimizers.soap import SOAP
from tests.ablate.test_optimizers import DECAY, LR, after, parameter

SHAPES = [(6, 4), (4, 6), (5, 5)]
BETAS = (0.8, 0.7)
DECAYED = {"lr": LR, "weight_decay": DECAY}


def lion(parameters: list[Any]) -> torch.optim.Optimizer:
    return lion_pytorch.Lion(parameters, betas=BETAS, **DECAYED)


def soap(parameters: list[Any]) -> torch.optim.Optimizer:
    """It decays parameters after the update, where every optimizer here does so before: compared without decay."""
    optimizer: torch.optim.Optimizer = pytorch_optimizer.SOAP(
        parameters, LR, betas=BETAS, weight_decay=0.0, precondition_frequency=2, eps=1e-8
    )
    return optimizer


def normuon(adjusted: bool) -> Any:
    def build(parameters: list[Any]) -> torch.optim.Optimizer:
        group = {"params": parameters, "use_muon": True, "momentum": 0.8, "beta2": 0.7, "use_adjusted_lr": adjusted}
        return pytorch_optimizer.NorMuon([{**group, **DECAYED}])

    return build


@pytest.mark.parametrize(
    ("ours", "decay", "theirs", "tolerance"),
    [
        pytest.param(Lion(betas=BETAS), DECAY, lion, 1e-12, id="Lion of lion-pytorch"),
        pytest.param(SOAP(betas=BETAS, every=2), 0.0, soap, 1e-5, id="SOAP of pytorch-optimizer, with QR in float32"),
        pytest.param(Muon(momentum=0.8, neuron_beta=0.7, adjust="original"), DECAY, normuon(False), 1e-6, id="NorMuon"),
        pytest.param(Muon(momentum=0.8, neuron_beta=0.7), DECAY, normuon(True), 1e-6, id="NorMuon with AdamW's size"),
    ],
)
def test_an_optimizer_is_another_package_s(ours: Optimizer, decay: float, theirs: Any, tolerance: float) -> None:
    mine, others = ([replace(parameter(*shape), weight_decay=decay) for shape in SHAPES] for _ in range(2))
    found = after(ours.build(mine, LR), mine)
    expected = after(theirs([each.parameter for each in others]), others)
    for each, other in zip(found, expected, strict=True):
        torch.testing.assert_close(each, other, rtol=tolerance, atol=tolerance)
