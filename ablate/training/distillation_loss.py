"""Distillation: a loss that includes a teacher's predictions for the same tokens (see `zoo.distillation`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import zoo
from ablate.training.batch import Loss
from ablate.training.trained import source_model
from store import Store
from store.documents import RunTeacher
from zoo.distillation import SoftTargets


@dataclass(frozen=True)
class DistillationLoss:
    """`loss` of a batch with the teacher's share. The teacher reads the same tokens, without dropout or gradients."""

    loss: Loss
    teacher: zoo.Decoder
    how: RunTeacher

    @classmethod
    def by(cls, store: Store, how: RunTeacher, loss: Loss, device: str) -> DistillationLoss:
        """The loss with the teacher from the store, in float32."""
        return cls(loss, source_model(store, how).float().to(device).eval().requires_grad_(False), how)

    def __call__(self, tokens: Tensor, targets: Tensor, **given: Any) -> tuple[Tensor, Tensor]:
        read = {name: value for name, value in given.items() if name != "part"}
        with torch.no_grad():
            rows = self.teacher.hidden(tokens, **read)
        how = self.how
        soft = SoftTargets(rows, self.teacher.read_out, how.temperature, how.weight, how.top_k)
        return self.loss(tokens, targets, soft=soft, **given)
