"""The sections of a study file, typed. `ablate.study.rung_reader` validates them after merging scales and edits.

The section `budget` is the training budget of every arm.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Tag,
    WithJsonSchema,
    create_model,
    model_validator,
)

from ablate.data.sources import DataSpec
from ablate.data.sources.stdlib import StdlibSource
from ablate.study.layers import Layer, LayerRule, merged_within_source, replaced_but_for_matching
from ablate.study.space import RESERVED_SEEDS
from ablate.study.tune_spec import Tune, TuneSpec
from ablate.study.yamlfile import StudyMap
from ablate.training.probes import Probes, short
from ablate.training.spec import TrainSpec
from evals.costs.spec import MeasureSpec
from evals.spec import EvalSpec
from store.documents import Caveat
from store.extensions import modules_of
from store.paths import NAME
from zoo.settings.axis import Spec, is_off
from zoo.settings.edits import merge
from zoo.settings.explain import yaml

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


LARGEST_SEED = 2**63 - 1
MOST_SEEDS = 100_000
"""Most seeds of an arm that may be given as a number."""


def _seeds(value: Any) -> tuple[int, ...]:
    """`3` means seeds 0, 1 and 2; numbers above a thousand skip the seeds that are reserved for choosing settings."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_SEEDS:
        beyond = RESERVED_SEEDS.stop + value - RESERVED_SEEDS.start
        return (*range(min(value, RESERVED_SEEDS.start)), *range(RESERVED_SEEDS.stop, beyond))
    if (
        isinstance(value, list | tuple)
        and value
        and all(type(seed) is int and 0 <= seed <= LARGEST_SEED for seed in value)
    ):
        if len(set(value)) == len(value):
            return tuple(value)
        raise ValueError(f"a seed is given twice: {', '.join(map(str, value))}")
    legal = f"a number of seeds (1 to {MOST_SEEDS:,}), a list of whole numbers from 0 to {LARGEST_SEED}, or auto"
    raise ValueError(f"must be {legal}, not {yaml(value)}")


class AutoSeeds(Spec):
    """`auto`: add seeds in rounds until every arm is settled or has `cap` of them."""

    start: Annotated[int, Field(ge=2)] = 3
    """Number of seeds of each arm in the first round."""
    cap: Annotated[int, Field(ge=2, le=1000)] = 12
    """Largest number of seeds of an arm; at least `start`."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.cap < self.start:
            raise ValueError(f"cap ({self.cap}) is below start ({self.start})")
        return self


GivenSeeds = Annotated[
    tuple[NonNegativeInt, ...],
    Field(strict=False),
    BeforeValidator(_seeds),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": "auto"},
                {"type": "integer", "minimum": 1, "maximum": MOST_SEEDS},
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

Seeds = Annotated[
    Annotated[GivenSeeds, Tag("given")] | Annotated[AutoSeeds, Tag("auto")],
    Discriminator(lambda value: "auto" if isinstance(value, Mapping | AutoSeeds) else "given"),
    BeforeValidator(lambda value: {} if value == "auto" else value),
]


DEFAULT_TRAIN = {"optimizer": {"kind": TrainSpec().optimizer.kind}}
"""Map into which edits such as `train.optimizer.momentum` are merged: the kind, without which they have no meaning."""

CONTRAST = r"^\S+ - \S+$"


def _contrast(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(CONTRAST, value):
        raise ValueError("must be two arms, `ONE - OTHER`")
    return value


Contrast = Annotated[str, Field(pattern=CONTRAST), BeforeValidator(_contrast)]


def merged_in_long(old: Any, new: Any, _layer: Layer) -> Any:
    """Merge after expanding short forms, so that edits by path find their parts."""
    return merge(short(old), short(new))


class OwnSections(Spec):
    """One question: a base model, arms that each change something in it, and a budget."""

    question: Annotated[str, Field(min_length=1)]
    """Question that the study answers, in one sentence: the title of its report."""
    source: str | None = None
    """Source of the question or the claim."""
    needs: Literal["gpu-minutes", "gpu-hour", "gpu-day", "gpu-week"] | None = None
    """Smallest scale with models large enough to answer the question; null if a small model on a CPU can."""
    baseline: Annotated[str, Field(pattern=f"^{NAME.pattern}$")] = "base"
    """The name of the unedited base model: the arm that the others are compared with."""
    base: StudyMap
    """A preset of the zoo, or `checkpoint: FOLDER` for a model trained elsewhere, and edits by path."""
    arms: dict[str, StudyMap] = Field(default={})
    """Edits of the base by path, per arm; `train.…` edits the training."""
    labels: dict[str, Annotated[str, Field(min_length=1)]] = Field(default={}, exclude_if=is_off)
    """What pages of claims call the arms, in a few words, by name: `{in_queries: a scale in the queries}`."""
    seeds: Seeds = AutoSeeds()
    """Number of seeds, or a list of them, or `auto`: as many as it takes to settle every arm, from 3 to 12."""
    tune: Tune = TuneSpec()
    """Settings that each arm tunes for itself before it is compared: `auto`, its learning rate; `off`, nothing;
    `carried`, nothing, since the file has rates that were tuned earlier; or a map."""
    data: Annotated[DataSpec, LayerRule(merged_within_source)] = StdlibSource()
    """Text or synthetic task that models are trained and validated on: a map with `source`, or only the source's
    name."""
    train: Annotated[TrainSpec, LayerRule(first=DEFAULT_TRAIN)] = TrainSpec()
    """Optimizer, learning-rate schedule, batch and numerics: the same in every arm unless the arm edits them."""
    budget: Annotated[Budget, LayerRule(replaced_but_for_matching)]
    """Amount of training that every arm gets: one of `flops`, `tokens`, `seconds` and `tokens_per_parameter`."""
    contrasts: Annotated[tuple[Contrast, ...], Field(strict=False)] = ()
    """More comparisons between two arms, as `swiglu - geglu`: judged together with those against the baseline."""
    caveats: Annotated[tuple[Caveat | Annotated[str, Field(min_length=1)], ...], Field(strict=False)] = Field(
        default=(), exclude_if=is_off
    )
    """Sentences that the result must not be read without, shown wherever it is: `{arm: lion, text: …}`, or a text alone
    if about the whole result."""
    margin: PositiveFloat | None = None
    """The smallest loss difference that matters, in nats per token: one shown to be smaller is *no difference*."""
    pilot: bool | None = None
    """Whether the study only explores: estimates and intervals, no verdicts, and nothing of the 5 % is spent. By
    default, if all arms are undertrained."""
    measure: MeasureSpec | None = MeasureSpec()
    """Prefill and decoding speed and bytes of cache, measured after training; null skips this."""
    evals: EvalSpec | None = EvalSpec()
    """Evaluations of every trained model; null evaluates only the loss."""
    probes: Annotated[Probes, LayerRule(merged_in_long)] = None
    """Probes recorded during training: `all`, a list of probes, or a map with `which` and `every`."""


if TYPE_CHECKING:
    StudySections: TypeAlias = OwnSections
else:
    StudySections = create_model(
        "StudySections",
        __base__=(*(wing.KEYS for wing in modules_of(__name__)), OwnSections),
        __doc__=OwnSections.__doc__,
        __module__=__name__,
    )
