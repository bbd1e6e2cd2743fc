"""Training that begins with another model's weights, or learns from its predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import zoo
from ablate.training.batch import Loss
from ablate.training.trained import trained_model, whole
from store import Store
from store.documents import RunDocument, RunStart, RunTeacher
from zoo.loss import SoftTargets


def initial_model(store: Store, run: RunDocument, start: RunStart) -> zoo.Decoder:
    """The model before training, converted from the run or checkpoint that it starts from."""
    return zoo.convert(source_model(store, start), zoo.parse(run.model), start.pooling, run.seed, start.growth)


def taught(store: Store, how: RunTeacher, loss: Loss, device: str) -> tuple[Loss, zoo.ModelSpec]:
    """The loss with the teacher's share, and the teacher's model, which is in float32."""
    teacher = source_model(store, how).float().to(device).eval().requires_grad_(False)
    return DistillationLoss(loss, teacher, how), teacher.spec


def source_model(store: Store, source: RunStart | RunTeacher) -> zoo.Decoder:
    """The model of the run or the checkpoint from which another run starts or is distilled."""
    if source.run is not None:
        trained: zoo.Decoder = trained_model(store, source.run)
        return trained
    if source.checkpoint is None:
        raise ValueError("a source needs a run or a checkpoint")
    folder = store.checkpoint_dir(source.checkpoint)
    with whole(folder, f"remove {folder}, and run the study again"):
        return zoo.open(folder)


@dataclass(frozen=True)
class DistillationLoss:
    """`loss` of a batch with the teacher's share (see `zoo.loss`). The teacher reads the same tokens, without dropout
    or gradients."""

    loss: Loss
    teacher: zoo.Decoder
    how: RunTeacher

    def __call__(self, tokens: Tensor, targets: Tensor, **given: Any) -> tuple[Tensor, Tensor]:
        read = {name: value for name, value in given.items() if name != "part"}
        with torch.no_grad():
            rows = self.teacher.hidden(tokens, **read)
        how = self.how
        soft = SoftTargets(rows, self.teacher.read_out, how.temperature, how.weight, how.top_k)
        return self.loss(tokens, targets, soft=soft, **given)
