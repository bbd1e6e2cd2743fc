"""Measured constants of this machine for the time of training."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

import zoo
from evals.costs.clock import Clock, seconds_of
from zoo.model import Decoder

LAYERS = 8
_STEPS = 5
TOKENS = 16


@dataclass(frozen=True)
class Speed:
    """Training speed of a device. flops_per_second: of large matrix products. seconds_per_layer: overhead that a layer
    of any width adds to a step. tried: measured over predicted time of steps, by their FLOPs."""

    flops_per_second: float
    seconds_per_layer: float = 0.0
    tried: Mapping[float, float] = field(default_factory=dict)

    def step_seconds(self, flops: float, layers: int, utilisation: float) -> float:
        """Predicted time of a step: FLOPs at a share of the peak, plus the overhead of layers, times the measured over
        predicted time of the tried step that is nearest in size."""
        foretold = flops / (self.flops_per_second * utilisation) + layers * self.seconds_per_layer
        if not self.tried:
            return foretold
        return foretold * self.tried[min(self.tried, key=lambda size: abs(math.log(size / flops)))]


def training_seconds_per_layer(device: str, clock: Clock = time.perf_counter) -> float:
    """Training time per step and layer of `all_overhead`: some hundred operations forward, backward and in AdamW. The
    median over steps.

    It is most of the time of deep and narrow models, and of small ones on fast devices.
    """
    model = all_overhead(device)
    tokens = torch.zeros(1, TOKENS, dtype=torch.long, device=device)

    def loss() -> Tensor:
        return nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

    _, *seconds = training_steps(model, loss, 1 + _STEPS, clock)
    return median(seconds) / LAYERS


def training_steps(model: nn.Module, loss: Callable[[], Tensor], count: int, clock: Clock) -> list[float]:
    """Seconds of each of `count` steps: forward, backward and AdamW's update. The first one includes setup."""
    parameters = list(model.parameters())
    update = _adamw(parameters)

    def step() -> None:
        loss().backward()
        update()
        model.zero_grad()

    return [seconds_of(step, parameters[0].device, clock) for _ in range(count)]


def _adamw(parameters: list[nn.Parameter]) -> Callable[[], None]:
    """Function that runs a step of AdamW. `torch.optim.AdamW` would load torch's compiler, which takes two seconds."""
    first, second = ([torch.zeros_like(each) for each in parameters] for _ in range(2))
    counts = [torch.zeros(()) for _ in parameters]

    def step() -> None:
        moved = [index for index, each in enumerate(parameters) if each.grad is not None]
        gradients = [grad for each in parameters if (grad := each.grad) is not None]
        weights, means, squares, steps = ([of[i] for i in moved] for of in (parameters, first, second, counts))
        with torch.no_grad():
            adamw(
                weights, gradients, means, squares, [], steps,
                amsgrad=False, beta1=0.9, beta2=0.999, lr=1e-3, weight_decay=0.01, eps=1e-8, maximize=False,
            )  # fmt: skip

    return step


def all_overhead(device: str) -> Decoder:
    """A model with almost nothing to compute or to read: pre-norm blocks of attention and SwiGLU with 32 features."""
    return zoo.build(zoo.load("small", d_model=32, n_layers=LAYERS, vocab_size=64)).to(device)


def memory_bytes(device: str) -> int:
    """Total memory of the GPU, or of this machine."""
    if device == "cuda":
        return int(torch.cuda.get_device_properties(0).total_memory)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def room_bytes(device: str, gpus: Iterable[int] = (0,)) -> int:
    """Memory that a run may fill: on a GPU what other programs leave free, on several that of the fullest, since a run
    may get any of them; on a CPU the machine's total memory."""
    return min(torch.cuda.mem_get_info(gpu)[0] for gpu in gpus) if device == "cuda" else memory_bytes(device)
