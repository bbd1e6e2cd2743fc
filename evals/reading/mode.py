"""The mode in which a model is read: nothing is trained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def in_evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Without dropout, and without what a forward pass in training changes, such as the biases of routers; the mode
    that the model was in comes back afterwards."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """No gradients, and evaluation mode; training mode comes back afterwards."""
    with in_evaluation_mode(model), torch.inference_mode():
        yield
