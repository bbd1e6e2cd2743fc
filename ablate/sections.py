"""The sections of a study file, typed. `ablate.study` lays the scales and edits over them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt, WithJsonSchema, model_validator

from ablate.data.sources.stdlib import StdlibSource
from ablate.data.spec import DataSpec
from ablate.training.spec import TrainSpec
from evals.spec import EvalSpec, MeasureSpec
from zoo.axis import Spec

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,39}")
"""Names of arms and scales: they stand in file names, in edits by path, and in tables."""

LARGEST_SEED = 2**63 - 1

LATER = ("parameters", "seconds")


def _seeds(value: Any) -> tuple[int, ...]:
    """`3` means seeds 0, 1 and 2."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 1000:
        return tuple(range(value))
    if (
        isinstance(value, list | tuple)
        and value
        and all(type(seed) is int and 0 <= seed <= LARGEST_SEED for seed in value)
    ):
        if len(set(value)) == len(value):
            return tuple(value)
        raise ValueError(f"a seed is given twice: {', '.join(map(str, value))}")
    raise ValueError(
        f"expected how many seeds (1 to 1000), or a list of whole numbers from 0 to {LARGEST_SEED}, not {value!r}"
    )


def _whole(value: Any) -> Any:
    """`1e6` is a whole number of tokens."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Seeds = Annotated[
    tuple[NonNegativeInt, ...],
    Field(strict=False),
    BeforeValidator(_seeds),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": 1000},
                {
                    "type": "array",
                    "items": {"type": "integer", "minimum": 0, "maximum": LARGEST_SEED},
                    "minItems": 1,
                    "uniqueItems": True,
                },
            ]
        }
    ),
]


class Budget(Spec):
    """What every arm may spend on training: exactly one of these."""

    flops: PositiveFloat | None = None
    """Training FLOPs (forward and backward), counted per arm."""
    tokens: Annotated[PositiveInt, BeforeValidator(_whole)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _available(cls, data: Any) -> Any:
        for kind in LATER:
            if isinstance(data, Mapping) and kind in data:
                raise ValueError(f"budgets in {kind} are not available yet: give flops or tokens")
        return data

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name, value in self if value is not None]
        if len(given) != 1:
            raise ValueError(f"needs one of flops and tokens, and has {' and '.join(given) or 'neither'}")
        return self

    @property
    def kind(self) -> str:
        """What is the same in every arm: `flops` or `tokens`."""
        return "flops" if self.flops is not None else "tokens"


Scalar = str | int | float | bool | None


class StudySections(Spec):
    """One question: a base model, arms that each change something in it, and a budget."""

    question: Annotated[str, Field(min_length=1)]
    source: str | None = None
    """Where the question or the claim comes from."""
    baseline: Annotated[str, Field(pattern=f"^{NAME.pattern}$")] = "base"
    """The name of the base model as it is: the arm that the others are compared with."""
    base: dict[str, Any]
    """A preset of the zoo, and edits by path."""
    arms: dict[str, dict[str, Any]] = Field(default={})
    """Edits of the base by path, per arm; `train.…` edits the training."""
    grid: dict[str, Annotated[list[Scalar], Field(min_length=1)]] = Field(default={})
    """Values per path: every arm is trained with every combination."""
    seeds: Seeds = (0, 1, 2)
    data: DataSpec = StdlibSource()
    train: TrainSpec = TrainSpec()
    budget: Budget
    margin: PositiveFloat | None = None
    """A difference in loss too small to matter, in nats per token: one shown to be smaller is *no difference*."""
    measure: MeasureSpec | None = MeasureSpec()
    evals: EvalSpec | None = EvalSpec()
