"""What is evaluated of a trained model."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from zoo.axis import Spec, variants
from zoo.errors import did_you_mean


def _ascending(multiples: tuple[int, ...]) -> tuple[int, ...]:
    """One spelling: each once, in order."""
    return tuple(sorted(set(multiples)))


Multiples = Annotated[
    tuple[PositiveInt, ...], Field(min_length=1, max_length=16, strict=False), AfterValidator(_ascending)
]


def _scalings(names: tuple[str, ...]) -> tuple[str, ...]:
    known = variants("zoo.positions.scalings")
    for name in names:
        if name not in known:
            raise ValueError(
                f"unknown scaling '{name}'" + (did_you_mean(name, known) or f": one of {', '.join(known)}")
            )
    return tuple(dict.fromkeys(names))


class PositionsSpec(Spec):
    """Loss by position in windows of several times the training context (see `evals.evaluations.positions`)."""

    multiples: Multiples = (1, 2, 4)
    """Lengths of the windows, as multiples of the training context."""
    tokens: PositiveInt = 16_384
    """About how many tokens of held-out text are read at each length; at least one window is."""
    extensions: Annotated[tuple[str, ...], Field(strict=False), AfterValidator(_scalings)] = Field(
        default=(), exclude_if=lambda value: not value
    )
    """Scalings of RoPE, such as `[linear, ntk, yarn]`: longer windows are read once more with each, by as many times as
    they are longer than the training context."""


class RecallSpec(Spec):
    """Associative recall on held-out text: the loss of tokens that complete a bigram which the window holds already, by
    distance (see `evals.evaluations.recall`)."""

    multiples: Multiples = (1,)
    """Lengths of the windows, as multiples of the training context."""
    tokens: PositiveInt = 65_536
    """About how many tokens of held-out text are read at each length; at least one window is."""
    frequent: NonNegativeInt | None = 1250
    """Bigrams that occur more often than this in the training text are no hits, since the weights alone may know them;
    null for hits of all. Zoology's number, for ten billion tokens."""


class SamplesSpec(Spec):
    """Text that the model writes after prompts from held-out text: the same prompts and draws for every arm."""

    prompts: Annotated[int, Field(ge=1, le=16)] = 4
    prompt_tokens: Annotated[int, Field(ge=1, le=512)] = 32
    new_tokens: Annotated[int, Field(ge=1, le=512)] = 64
    temperature: NonNegativeFloat = 0.8
    """0 takes the likeliest token each time."""


class TokenLossesSpec(Spec):
    """The loss of every token of a few held-out passages, the same for every arm: which tokens make the difference?"""

    passages: Annotated[int, Field(ge=2, le=256)] = 32
    tokens: Annotated[int, Field(ge=2, le=1024)] = 128
    """Per passage; no more than the training context."""


class AttentionSpec(Spec):
    """What each head attends to in one stretch of held-out text."""

    tokens: Annotated[int, Field(ge=2, le=64)] = 32
    layers: Annotated[int, Field(ge=1, le=8)] = 4
    """At most so many, spread from the first to the last."""
    heads: Annotated[int, Field(ge=1, le=16)] = 8
    """At most so many of each layer, the first ones."""


OF_TEXT = ("positions", "recall", "samples", "token_losses", "attention")
"""What is asked of held-out text, beside tasks."""


def _switched_on(value: Any) -> Any:
    """`true` is a section with nothing else said, `false` is none."""
    return ({} if value else None) if isinstance(value, bool) else value


def _lists(given: Any) -> Any:
    """One value may be written without brackets."""
    return {k: v if isinstance(v, list) else [v] for k, v in given.items()} if isinstance(given, dict) else given


class DiagnosticsSpec(Spec):
    """Accuracy by difficulty, for studies whose data are a task that is made (see `evals.evaluations.diagnostics`)."""

    examples: PositiveInt = 256
    """How many of each difficulty are asked."""
    at: Annotated[dict[str, list[int]], BeforeValidator(_lists)] = Field(default={})
    """Difficulties in place of those of training, by the setting of the data: `{pairs: [4, 64]}`."""


class EvalSpec(Spec):
    """lm-eval tasks, loss by position and recall for text, accuracy by difficulty for tasks that are made."""

    diagnostics: DiagnosticsSpec | None = Field(default=None, exclude_if=lambda value: value is None)
    """What is asked where the data are a task that is made; there alone, and then nothing else is."""
    samples: Annotated[
        SamplesSpec | None, BeforeValidator(_switched_on, json_schema_input_type=SamplesSpec | bool | None)
    ] = Field(default=None, exclude_if=lambda value: value is None)
    """`true`, or a map: text that each arm writes after the same prompts."""
    token_losses: Annotated[
        TokenLossesSpec | None, BeforeValidator(_switched_on, json_schema_input_type=TokenLossesSpec | bool | None)
    ] = Field(default=None, exclude_if=lambda value: value is None)
    """`true`, or a map: the loss of every token of a few passages."""
    attention: Annotated[
        AttentionSpec | None, BeforeValidator(_switched_on, json_schema_input_type=AttentionSpec | bool | None)
    ] = Field(default=None, exclude_if=lambda value: value is None)
    """`true`, or a map: what each head attends to in one stretch of text."""
    positions: PositionsSpec | None = Field(default=None, exclude_if=lambda value: value is None)
    """`{multiples: [1, 2, 4]}`: loss by position up to four times the training context; null for none."""
    recall: Annotated[
        RecallSpec | None, BeforeValidator(_switched_on, json_schema_input_type=RecallSpec | bool | None)
    ] = Field(default=None, exclude_if=lambda value: value is None)
    """`true`, or a map: the loss of tokens that complete a bigram seen before, by how far back it is."""
    tasks: tuple[str, ...] = Field(default=("heldout_pairs", "heldout_text"), strict=False)
    """Names of tasks, or paths of task files; in a study relative to the study's file. Empty with `positions` alone."""
    include: tuple[str, ...] = Field(default=(), strict=False)
    """Folders with task files of your own; their names may then stand in `tasks`. Relative as `tasks` are."""
    limit: PositiveInt | None = None
    """At most so many items per task; null for all."""
    fewshot: NonNegativeInt | None = Field(default=None, exclude_if=lambda value: value is None)
    """Solved examples before each item, but for tasks that fix their number at 0; null leaves it to the tasks."""
    data: dict[str, str] = Field(default={}, exclude_if=lambda value: not value)
    """Files or folders (parquet, jsonl, json) in place of the data sets of tasks, by the name of a task or a group."""
    batch: PositiveInt | Literal["auto"] = "auto"
    """Rows that the model reads at once; `auto` fills passes with some thousand tokens, as far as memory allows."""
    seed: int = 0
    """Seed of the items that are made of held-out text, and of the stretches read for `positions` and `recall`."""

    @field_validator("tasks")
    @classmethod
    def _something(cls, tasks: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if not tasks and not any(info.data.get(name) for name in (*OF_TEXT, "diagnostics")):
            raise PydanticCustomError("too_short", "needs at least one task, or positions")
        return tasks
