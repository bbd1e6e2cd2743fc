"""The section `budget` of a study file: what every arm may spend."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator

from zoo.settings.axis import Spec, is_off

ABSOLUTE = ("flops", "tokens", "seconds")
"""Budgets that belong to one size."""


SPENDABLE = (*ABSOLUTE, "tokens_per_parameter")
"""Quantities that a budget can be given in."""


def _long(value: Any) -> Any:
    """A setting's path alone is a knob with nothing else said of it."""
    return {"knob": value} if isinstance(value, str) else value


class ParameterMatch(Spec):
    """Match of an arm's number of parameters to the baseline's, by changing one setting of its model."""

    knob: Annotated[str, Field(min_length=1)]
    """The setting, by its path: `block.ffn.d_ff`."""
    step: PositiveInt = 1
    """Its legal values are the multiples of this that the model accepts."""
    count: Literal["total", "non_embedding"] = "total"
    """Which parameters are counted; `non_embedding` leaves out the tables of tokens and positions."""

    @model_validator(mode="after")
    def _not_the_vocabulary(self) -> Self:
        if self.knob == "vocab_size":
            raise ValueError("the vocabulary follows from the data: name another setting")
        return self


class Budget(Spec):
    """Training budget of every arm: exactly one of flops, tokens, seconds and tokens_per_parameter, optionally with
    parameters."""

    flops: PositiveFloat | None = None
    """Training FLOPs (forward and backward), counted per arm."""
    tokens: PositiveInt | None = None
    """Training tokens of a run, whatever they cost: `1e6`."""
    seconds: PositiveFloat | None = None
    """Training time of one run on this device, including data loading and excluding validation."""
    tokens_per_parameter: PositiveFloat | None = Field(default=None, exclude_if=is_off)
    """FLOPs in other words: those of the baseline on so many tokens per non-embedding parameter of its own. Some 20
    are compute-optimal (Hoffmann et al. 2022, arXiv:2203.15556)."""
    parameters: Annotated[
        ParameterMatch | None, BeforeValidator(_long, json_schema_input_type=str | ParameterMatch | None)
    ] = None
    """The path of the setting that is changed to match every arm's parameters to the baseline's."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in SPENDABLE if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or ("parameters alone" if self.parameters else "none of them")
            raise ValueError(f"needs one of {', '.join(SPENDABLE[:-1])} and {SPENDABLE[-1]}, and has {found}")
        return self

    def scaled(self, fraction: float) -> Budget:
        """A share of it."""
        return self if fraction == 1 else self.model_copy(update={self.given: fraction * self.amount})

    def in_flops(self, parameters: int, flops_per_token: float) -> Budget:
        """The FLOPs of a budget in tokens per parameter."""
        flops = self.amount * parameters * flops_per_token
        return self.model_copy(update={"tokens_per_parameter": None, "flops": flops})

    @property
    def given(self) -> str:
        """The setting that has the amount."""
        return next(name for name in SPENDABLE if getattr(self, name) is not None)

    @property
    def kind(self) -> str:
        """The quantity that is spent: `flops`, `tokens` or `seconds`."""
        return "flops" if self.tokens_per_parameter is not None else self.given

    @property
    def amount(self) -> float:
        """The amount of what is given."""
        amount: float = getattr(self, self.given)
        return amount

    @property
    def matched(self) -> str:
        """The quantities that are the same in every arm: `flops`, or `flops and parameters`."""
        if self.parameters is None:
            return self.kind
        return f"{self.kind} and {'non-embedding ' * (self.parameters.count == 'non_embedding')}parameters"
