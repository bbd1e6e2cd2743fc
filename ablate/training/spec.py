"""Settings of training, except its length, which follows from the budget."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ablate.training.objectives import Objective
from ablate.training.objectives.next_token import NextToken
from ablate.training.optimizers import Betas, Optimizer
from ablate.training.optimizers.adamw import AdamW
from ablate.training.weights import AverageSpec, PartSpec
from store import StoreError
from store.documents import RunDocument
from store.extensions import modules_of
from zoo.errors import SpecError
from zoo.settings.axis import Choice, Spec, is_off
from zoo.settings.explain import checked

# Weight decay by parameter role.

MATRICES = ("embedding", "input", "output", "head")


class WeightDecay(Spec):
    """λ per role; a number applies to the four kinds of matrices, with 0 for gains and biases.

    A map must name all four, so that no λ of a matrix is implicit. A tied table counts as an embedding.
    """

    embedding: NonNegativeFloat
    """λ of the token table, a tied one included, and of other tables."""
    input: NonNegativeFloat
    """λ of matrices that read the residual stream, such as W_q and W_up."""
    output: NonNegativeFloat
    """λ of matrices that write to the residual stream, such as W_o and W_down."""
    head: NonNegativeFloat
    """λ of the matrix of the head, if it is not tied to the token table."""
    gain: NonNegativeFloat = 0.0
    """λ of gains of norms and other multipliers."""
    bias: NonNegativeFloat = 0.0
    """λ of biases and other offsets."""

    @model_validator(mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        if isinstance(value, WeightDecay):
            return value
        if isinstance(value, dict):
            missing = [role for role in MATRICES if role not in value]
            if missing and value.keys() <= cls.model_fields.keys():
                raise ValueError(f"needs each of {', '.join(MATRICES)}; missing: {', '.join(missing)}")
            return value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise ValueError(f"must be a number of at least 0, or a map by parameter role, not {value!r}")
        return dict.fromkeys(MATRICES, value)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "number", "minimum": 0}, super().__get_pydantic_json_schema__(schema, handler)]}


Fraction = Annotated[float, Field(ge=0, le=1)]


def _warmup(given: Any) -> Any:
    is_share = isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given <= 1
    if not is_share and not (isinstance(given, str) and re.fullmatch(r"[1-9]\d* steps", given)):
        raise ValueError(f"must be a share between 0 and 1, or a number of steps such as `100 steps`, not {given!r}")
    return given


class WidthTransfer(Spec):
    """`lr` is as tuned at d_model = base_width, and is rescaled with the width by parameter role (μP; see
    `ablate.training.transfer`)."""

    base_width: PositiveInt
    """d_model at which the learning rate was tuned."""

    def ratio(self, d_model: int) -> float:
        """Width of a model relative to the base width."""
        return d_model / self.base_width


class DepthTransfer(Spec):
    """`lr` is as tuned at n_layers = base_layers, and stays the best as layers are added (CompleteP; see
    `ablate.training.transfer`)."""

    base_layers: PositiveInt
    """n_layers at which the learning rate was tuned."""

    def ratio(self, n_layers: int) -> float:
        """Depth of a model relative to the base depth."""
        return n_layers / self.base_layers


class Timeless:
    """Marks a setting that does not affect the time of a step: arms that differ only in such settings have the same
    time."""


class OwnTrainSpec(Spec):
    """Optimizer, schedule and batch. Learning rates are peaks; steps come from the budget."""

    context: PositiveInt = 256
    """Tokens of a training window."""
    batch: PositiveInt = 8
    """Windows per optimizer step: a step has batch × context tokens."""
    lr: Annotated[PositiveFloat, Timeless] = 3e-3
    """The peak learning rate. Good values differ between optimizers: tune it for each."""
    warmup: Annotated[float | str, BeforeValidator(_warmup), Timeless] = 0.05
    """Share of the steps over which the learning rate rises linearly from 0, or their number, `100 steps`; 0 means no
    warm-up."""
    schedule: Annotated[Literal["constant", "cosine", "linear", "wsd"], Timeless] = "cosine"
    """Shape of the learning rate after warm-up: `constant`; `cosine` or `linear` from the peak to `final_lr`; `wsd`,
    constant and then falling linearly over the last share `decay`."""
    final_lr: Annotated[Fraction, Timeless] = 0.1
    """Learning rate after the last step, as a share of the peak (cosine, linear and wsd)."""
    decay: Annotated[Fraction, Timeless] = 0.2
    """Share of the steps that wsd spends decaying."""
    optimizer: Annotated[Optimizer, Choice("ablate.training.optimizers")] = AdamW()
    """`adamw`, `lion`, `muon`, `schedule_free`, `sgd` or `soap`, or a map with kind and settings: `{kind: sgd,
    momentum: 0.95}`."""
    betas: Betas | None = Field(default=None, exclude=True)
    """Short for the optimizer's own setting `betas`."""
    weight_decay: Annotated[WeightDecay, Timeless] = WeightDecay(embedding=0.1, input=0.1, output=0.1, head=0.1)
    """Decoupled. A number, for matrices only; or a map by parameter role, `{embedding: 0, input: 0.1, output: 0.1,
    head: 0.1}`."""
    width_transfer: WidthTransfer | None = None
    """`{base_width: 64}`: learning rates by role, so that the best one at d_model 64 stays the best when it grows."""
    depth_transfer: DepthTransfer | None = Field(default=None, exclude_if=lambda transfer: transfer is None)
    """`{base_layers: 4}`: the best learning rate at 4 layers stays the best with more layers, whose branches need
    `branch_scale` 4 / n_layers (CompleteP, Dey et al. 2025, arXiv:2505.01618)."""
    grad_clip: PositiveFloat | None = 1.0
    """Largest global gradient norm; null for no clipping."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 means autocast: weights and optimizer state stay float32."""
    average: AverageSpec | None = Field(default=None, exclude_if=lambda average: average is None)
    """Score and store an average of the weights in place of the last ones: `{kind: ema, horizon: 0.04}`; null for the
    last ones."""
    validate_every: Annotated[Fraction, Timeless] = 0.2
    """Interval between validations, as a share of the steps; the model is always validated after the last."""
    compile: bool = False
    """Compile model and loss into one program, which takes a minute or so and is cached for later runs."""
    deterministic: bool = Field(default=False, exclude_if=lambda wanted: not wanted)
    """On CUDA, use only kernels that give the same bits each time, which are slower; an operation without one is an
    error. On a CPU, the bits are the same anyway."""
    objective: Annotated[Objective, Choice("ablate.training.objectives")] = Field(
        default=NextToken(), exclude_if=lambda objective: objective == NextToken()
    )
    """Training objective: `next_token`, `masked` (encoders), `span_corruption` (encoder and decoder), `prefix`, or
    `blank_infilling` (prefix LMs)."""

    @classmethod
    def of(cls, run: RunDocument) -> Self:
        """The settings of a stored run. Raises StoreError for one that this installation does not have."""
        try:
            return checked(cls, run.train)
        except SpecError as error:
            raise StoreError(f"run {run.digest}: train.{error}") from error

    def warmup_steps(self, steps: int) -> int:
        """Number of warm-up steps, of all `steps`."""
        given = self.warmup
        return min(int(given.removesuffix(" steps")), steps) if isinstance(given, str) else round(given * steps)

    @property
    def tokens(self) -> int:
        """Text tokens in a step."""
        return self.batch * self.context

    @property
    def part(self) -> PartSpec | None:
        """The setting that trains something beside frozen weights; None if all weights are trained."""
        return next((part for name in PARTS if (part := getattr(self, name)) is not None), None)

    @field_validator("optimizer")
    @classmethod
    def _without_a_schedule(cls, optimizer: Optimizer, info: ValidationInfo) -> Optimizer:
        if optimizer.averages and info.data.get("schedule", "constant") != "constant":
            raise ValueError(f"{optimizer.kind} averages instead of lowering its rate: set train.schedule to constant")
        return optimizer

    @field_validator("average")
    @classmethod
    def _only_average(cls, average: AverageSpec | None, info: ValidationInfo) -> AverageSpec | None:
        optimizer = info.data.get("optimizer")
        if average is not None and optimizer is not None and optimizer.averages:
            raise ValueError(f"the optimizer {optimizer.kind} scores and stores an average of its own")
        return average

    @field_validator("betas")
    @classmethod
    def _of_the_optimizer(cls, betas: Betas | None, info: ValidationInfo) -> Betas | None:
        optimizer = info.data.get("optimizer")
        if betas is None or optimizer is None:
            return betas
        if "betas" not in type(optimizer).model_fields:
            raise ValueError(f"{optimizer.kind} has no betas")
        if "betas" in optimizer.model_fields_set:
            raise ValueError("given twice (also as optimizer.betas)")
        return betas

    @model_validator(mode="after")
    def _one_spelling(self) -> Self:
        if self.betas is not None:
            optimizer = self.optimizer.model_copy(update={"betas": self.betas})
            self.__dict__.update(optimizer=optimizer, betas=None)  # frozen from here on
        return self


PARTS: dict[str, type[PartSpec]] = {
    name: part for wing in modules_of("ablate.training.weights") for name, part in wing.PARTS.items()
}
"""Settings that choose an addition to frozen weights; null trains all weights."""

if TYPE_CHECKING:
    TrainSpec: TypeAlias = OwnTrainSpec
else:
    TrainSpec = create_model(
        "TrainSpec",
        __base__=OwnTrainSpec,
        __doc__=OwnTrainSpec.__doc__,
        __module__=__name__,
        **{
            name: (part | None, Field(default=None, exclude_if=is_off, description=part.setting))
            for name, part in PARTS.items()
        },
    )


def timeless() -> set[str]:
    """The settings that do not affect the time of a step."""
    return {name for name, setting in TrainSpec.model_fields.items() if Timeless in setting.metadata}
