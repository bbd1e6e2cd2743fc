"""The speed of a machine, from which the time of training is foretold."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

import torch

import zoo
from evals.costs.clock import Clock, synchronise
from evals.costs.matmul import peak_flops_per_second

_LAYERS = 4
_STEPS = 5


@dataclass(frozen=True)
class Speed:
    """Training speed of a device. flops_per_second: of large matrix products. seconds_per_layer: the time that a layer
    adds to a step, however narrow it is."""

    flops_per_second: float
    seconds_per_layer: float = 0.0


def measure_speed(device: torch.device | str, dtype: torch.dtype) -> Speed:
    """Measure this machine, under the settings in force. Takes a second."""
    return Speed(peak_flops_per_second(device, dtype), seconds_per_layer(device))


def _tiny() -> zoo.ModelSpec:
    edits = {"d_model": 16, "n_layers": _LAYERS, "vocab_size": 64, "block.mixer.heads": 2}
    return zoo.load("small", **edits)


def seconds_per_layer(device: torch.device | str, clock: Clock = time.perf_counter) -> float:
    """Seconds that a layer adds to a training step however narrow it is: of starting its operations, some hundred,
    forward, backward and in the optimizer.

    The median over steps of a model so small that its arithmetic takes no time, divided by its layers. Small models on
    fast devices, and deep and narrow ones anywhere, take little else. About half a second.
    """
    device = torch.device(device)
    model = zoo.build(_tiny(), seed=0).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.zeros(1, 16, dtype=torch.long, device=device)
    seconds = []
    for _ in range(_STEPS + 1):
        synchronise(device)
        start = clock()
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        synchronise(device)
        seconds.append(clock() - start)
    return median(seconds[1:]) / _LAYERS
