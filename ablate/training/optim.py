"""The optimizer of a model: every parameter with the weight decay and the learning rate of its role."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

import zoo
from ablate.training.depth_transfer import epsilon_factor
from ablate.training.lora import Adapters
from ablate.training.optimizers import Trained, Updates
from ablate.training.optimizers._cautious import CautiousDecay
from ablate.training.spec import TrainSpec
from zoo.init import Role


def trained_part(model: zoo.Decoder, spec: TrainSpec, seed: int) -> nn.Module:
    """The module that training changes: the model, or its adapters, with the model's own weights frozen."""
    return model if spec.lora is None else Adapters(model, spec.lora, seed)


def build_optimizer(
    model: nn.Module, roles: Mapping[str, Role], spec: TrainSpec, d_model: int, n_layers: int
) -> Updates:
    """Build the optimizer of `spec`. roles: the role of every parameter of `model`."""
    found = trained(model, roles, spec, d_model, n_layers)
    if spec.optimizer.cautious_decay and not spec.optimizer.decays_cautiously:
        return CautiousDecay(spec.optimizer, found, spec.lr)
    return spec.optimizer.build(found, spec.lr)


def trained(model: nn.Module, roles: Mapping[str, Role], spec: TrainSpec, d_model: int, n_layers: int) -> list[Trained]:
    """The trainable parameters, shared ones once. Weight decay is divided by the learning-rate factor, so that width
    transfer leaves their product unchanged."""
    factors = width_factors(spec, d_model)
    found = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            role = roles[name]
            factor = factors.get(role, 1.0)
            decay, eps = getattr(spec.weight_decay, role) / factor, epsilon_factor(spec, n_layers, name)
            found.append(Trained(parameter, role, decay, factor, eps))
    return found


def width_factors(spec: TrainSpec, d_model: int) -> Mapping[Role, float]:
    """Factors on the learning rate by role, 1 for a role not named. Raises ValueError if no rule is known."""
    if spec.width_transfer is None:
        return {}
    factors = spec.optimizer.width_factors(spec.width_transfer.ratio(d_model))
    if factors is None:
        raise ValueError(f"width transfer does not support the optimizer {spec.optimizer.kind}")
    return factors
