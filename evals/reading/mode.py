"""Evaluation mode of a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def in_evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Switch off dropout, and changes that forward passes make in training, such as those of router biases; the
    previous mode is restored afterwards."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; the previous mode is restored afterwards."""
    with in_evaluation_mode(model), torch.inference_mode():
        yield
