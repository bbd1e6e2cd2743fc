"""How a model is trained, apart from how long: that follows from the budget."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from zoo.axis import Spec

Fraction = Annotated[float, Field(ge=0, le=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]
"""At 1 a moving average would never move."""


class TrainSpec(Spec):
    """Optimiser, schedule and batch. Learning rates are peaks; steps come from the budget."""

    context: PositiveInt = 256
    batch: PositiveInt = 8
    lr: PositiveFloat = 3e-3
    warmup: Fraction = 0.05
    """Share of the steps over which the learning rate rises linearly from 0; 0 is allowed."""
    schedule: Literal["constant", "cosine", "linear", "wsd"] = "cosine"
    final_lr: Fraction = 0.1
    """Learning rate after the last step, as a share of the peak (cosine, linear and wsd)."""
    decay: Fraction = 0.2
    """Share of the steps that wsd spends decaying."""
    optimizer: Literal["adamw"] = "adamw"
    betas: tuple[Decay, Decay] = Field(default=(0.9, 0.95), strict=False)
    weight_decay: NonNegativeFloat = 0.1
    """Decoupled, on matrices only (roles input, output, embedding and head), never on gains and biases."""
    grad_clip: PositiveFloat | None = 1.0
    """Largest global gradient norm; null for no clipping."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 means autocast: weights and optimiser state stay float32."""
    validate_every: Fraction = 0.2
    """Validation loss is measured each such share of the steps, and always after the last."""
    compile: bool = False
