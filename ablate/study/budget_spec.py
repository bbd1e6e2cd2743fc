"""The section `budget` of a study file: the training budget of every arm."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator

from zoo.settings.axis import Spec, is_off

ABSOLUTE = ("flops", "tokens", "seconds")
"""Budgets in absolute amounts, which suit one model size only."""


SPENDABLE = (*ABSOLUTE, "tokens_per_parameter")
"""Quantities that a budget can be given in."""


def _long(value: Any) -> Any:
    """Expand a bare path to a map with this `knob`."""
    return {"knob": value} if isinstance(value, str) else value


class ParameterMatch(Spec):
    """Match of an arm's number of parameters to the baseline's, by changing one setting of its model."""

    knob: Annotated[str, Field(min_length=1)]
    """Path of the setting: `block.ffn.d_ff`."""
    step: PositiveInt = 1
    """Its legal values are the multiples of this that the model accepts."""
    count: Literal["total", "non_embedding"] = "total"
    """Parameters that are counted; `non_embedding` leaves out the tables of tokens and positions."""

    @model_validator(mode="after")
    def _not_the_vocabulary(self) -> Self:
        if self.knob == "vocab_size":
            raise ValueError("cannot be vocab_size, which the data determine: name another setting")
        return self


class Budget(Spec):
    """Training budget of every arm: exactly one of flops, tokens, seconds and tokens_per_parameter, optionally with
    parameters."""

    flops: PositiveFloat | None = None
    """Training FLOPs (forward and backward), counted per arm."""
    tokens: PositiveInt | None = None
    """Training tokens of a run, whatever their cost: `1e6`."""
    seconds: PositiveFloat | None = None
    """Training time of one run on this device, including data loading and excluding validation."""
    tokens_per_parameter: PositiveFloat | None = Field(default=None, exclude_if=is_off)
    """A budget in FLOPs, for every arm: those that the baseline needs for this many tokens per non-embedding parameter.
    About 20 are compute-optimal (Hoffmann et al. 2022, arXiv:2203.15556)."""
    parameters: Annotated[
        ParameterMatch | None, BeforeValidator(_long, json_schema_input_type=str | ParameterMatch | None)
    ] = None
    """The path of the setting that is changed to match every arm's parameters to the baseline's."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in SPENDABLE if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or ("parameters alone" if self.parameters else "none of them")
            raise ValueError(f"needs exactly one of {', '.join(SPENDABLE[:-1])} and {SPENDABLE[-1]}, but has {found}")
        return self

    def scaled(self, fraction: float) -> Budget:
        """This share of the budget."""
        return self if fraction == 1 else self.model_copy(update={self.given: fraction * self.amount})

    def in_flops(self, parameters: int, flops_per_token: float) -> Budget:
        """A budget in tokens per parameter as FLOPs, for a baseline of these `parameters` and `flops_per_token`."""
        flops = self.amount * parameters * flops_per_token
        return self.model_copy(update={"tokens_per_parameter": None, "flops": flops})

    @property
    def given(self) -> str:
        """Name of the setting that gives the amount."""
        return next(name for name in SPENDABLE if getattr(self, name) is not None)

    @property
    def kind(self) -> str:
        """The quantity that is spent: `flops`, `tokens` or `seconds`."""
        return "flops" if self.tokens_per_parameter is not None else self.given

    @property
    def amount(self) -> float:
        """The amount, as given."""
        amount: float = getattr(self, self.given)
        return amount

    @property
    def matched(self) -> str:
        """The quantities that are the same in every arm: `flops`, or `flops and parameters`."""
        if self.parameters is None:
            return self.kind
        return f"{self.kind} and {'non-embedding ' * (self.parameters.count == 'non_embedding')}parameters"
