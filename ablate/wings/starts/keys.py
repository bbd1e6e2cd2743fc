"""Keys of a study that name other models: `start` and `teacher` of an arm, `checkpoint` of the base."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from ablate.study.sources import Base, Source
from ablate.wings.starts.checkpoints import Checkpoint
from zoo.settings.axis import is_off

START = "start"
TEACHER = "teacher"
AFTER_AN_ARM = 0.05
"""Share of the original training that recovers most of the loss (Ainslie et al. 2023)."""


class StartSpec(Source):
    """Weights that an arm starts from: those of another trained arm with the same seed, or those of a checkpoint."""

    arm: str | None = None
    """The baseline, or an arm that does not itself start from another."""
    checkpoint: str | None = None
    """A folder that transformers or `zoo.save` wrote, or a run's. Relative to the study's file; `~` and `$VARIABLES`
    are expanded. `base.checkpoint` applies to every arm; null in an arm trains it from scratch."""
    fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the study's budget that the arm spends from there; null for 0.05 after another arm, and for all of it
    after a checkpoint."""
    pooling: Literal["mean", "first", "random"] = "mean"
    """Method of reducing kv heads: the mean of each group, the first of each group, or newly initialised."""
    growth: Literal["stack", "duplicate", "width", "thin", "truncate"] | None = Field(default=None, exclude_if=is_off)
    """Method of resizing the starting model. More layers: repeat the whole stack, or each layer. Wider layers: copy
    features (same function). Fewer layers: keep evenly spaced ones, or the first. Null if the size is the same."""
    gives_weights: ClassVar[bool] = True

    @property
    def share(self) -> float:
        """Share of the study's budget."""
        return self.fraction or (1.0 if self.arm is None else AFTER_AN_ARM)

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.arm is not None and self.checkpoint is not None:
            raise ValueError("arm and checkpoint cannot be combined: set one of them to null")
        if self.arm is None and self.checkpoint is None and self.model_fields_set - {"arm", "checkpoint"}:
            raise ValueError("needs an arm or a checkpoint to start from")
        return self


class TeacherSpec(Source):
    """Teacher whose predictions are added to the targets: another arm, trained with the same seed, or a checkpoint."""

    arm: str | None = None
    """The baseline, or an arm that neither starts from another nor has a teacher."""
    checkpoint: str | None = None
    """A folder, as in `start.checkpoint`, with the arm's own vocabulary."""
    temperature: PositiveFloat = 1.0
    """T: divisor of the logits of both models."""
    weight: Annotated[float, Field(gt=0, le=1)] = 0.5
    """w: loss = (1 − w) · cross-entropy + w · T² · KL(teacher ‖ student)."""
    top_k: PositiveInt | None = Field(default=None, exclude_if=is_off)
    """Keep this many of the teacher's likeliest tokens, renormalised; null keeps all."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.arm is None) == (self.checkpoint is None):
            raise ValueError("needs exactly one of arm and checkpoint")
        return self


SOURCES = {START: StartSpec, TEACHER: TeacherSpec}
BASES = {
    "checkpoint": Base(
        what="the path of a checkpoint",
        description="Folder of a trained model that the base is and starts from, as transformers or `zoo.save` wrote"
        " it.",
        model=lambda path, folder: Checkpoint.at(path, folder).model,
        tokenizer=lambda path, folder: Checkpoint.at(path, folder).tokenizer,
        sections=lambda path: {START: {"checkpoint": path}},
    )
}
