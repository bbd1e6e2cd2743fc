"""Loss by position, up to several times the training context, to test positions that a model was not trained on.

Held-out text is read in windows of `multiple` × training context, as one row of tokens in which a window may cross from
one document into the next, in the same stretches of text for all models and lengths (see `evals.reading.windows`).

The extrapolation gap is the cost of the longer window: the loss of the tokens in its last quarter, minus the loss of
the same tokens read again in windows of the training context, where they are also the last quarter. The difficulty of
the text cancels. A model that reads past its training context without harm has a gap of 0, one that gains from the
longer context a negative gap. After Press et al. 2022, arXiv:2108.12409, who compare windows by their length.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, Field, PositiveInt

from evals.evaluations import EvaluationSpec
from evals.found import Found
from evals.option import Option, whole
from evals.reading.passes import Rows, check_causal
from evals.reading.windows import (
    Floats,
    Ints,
    Multiples,
    Reader,
    Reason,
    Text,
    bits_per_byte,
    buckets,
    finite,
    loss_score,
    mean,
    means,
    rows_of,
    stderr,
    stretches,
    unless_out_of_memory,
)
from evals.subject import HeldOutText, Subject
from store.documents import JsonObject, Score
from zoo.checkpoint import assemble
from zoo.errors import SpecError
from zoo.model import Decoder
from zoo.settings.axis import variants
from zoo.settings.edits import SpecJson
from zoo.settings.explain import unknown
from zoo.spec import parse

SCALINGS = "zoo.positions.scalings"
TASK = "positions"
"""Name of its scores, which are listed among those of tasks."""


def _scalings(names: tuple[str, ...]) -> tuple[str, ...]:
    known = variants(SCALINGS)
    for name in names:
        if name not in known:
            raise ValueError(unknown("scaling", name, list(known)))
    return tuple(dict.fromkeys(names))


class PositionsSpec(EvaluationSpec):
    """Loss by position in windows of several times the training context."""

    multiples: Annotated[Multiples, Option("N", whole, list, name="positions")] = (1, 2, 4)
    """Loss by position in windows of N times the training context."""
    tokens: PositiveInt = 16_384
    """Approximate number of held-out tokens that are read at each length; at least one window."""
    extensions: Annotated[tuple[str, ...], Field(strict=False), AfterValidator(_scalings)] = Field(
        default=(), exclude_if=lambda value: not value
    )
    """Scalings of RoPE, such as `[linear, ntk, yarn]`: longer windows are read again with each, whose factor is the
    window's multiple of the training context."""

    def scored(self) -> tuple[str, ...]:
        return (TASK,)

    def run(self, subject: Subject, data: HeldOutText) -> Found:
        model, text = subject.model, data.text
        return loss_by_position(model, text, self, context=subject.context, batch=subject.batch, seed=subject.seed)


def loss_by_position(model: Decoder, text: Text, spec: PositionsSpec, *, context: int, batch: Rows, seed: int) -> Found:
    """Read `text` at every multiple of `context`, the training context; `batch` windows of that length at a time.

    The same arguments give the same numbers. A length that does not fit the model or the text has a reason.
    """
    check_causal(model.spec)
    reader = Reader.of(model, text, context, batch)
    within = stretches(len(text.tokens), [m * context for m in spec.multiples], spec.tokens, seed)
    found = {m: _read(reader, m, within.windows(m * context)) for m in spec.multiples}
    stretched = {
        name: {m: _extended(reader, name, value, within.windows(m * context)) for m, value in found.items() if m > 1}
        for name in spec.extensions
    }
    everything = [(name, m, value) for name, of in ((None, found), *stretched.items()) for m, value in of.items()]
    readings = [value for _, _, value in everything if isinstance(value, WindowLosses)]
    items = []  # every stretch, for paired tests
    for row in range(len(within.starts) if readings else 0):
        values: JsonObject = {
            metric: finite(each[row]) for reading in readings for metric, each in reading.by_stretch()
        }
        items.append(reader.item(TASK, within, row, values))
    return Found(
        scores={TASK: {metric: score for each in readings for metric, score in each.scores()}},
        items=items,
        about=reader.about(within),
        rows=[
            row
            for name, m, value in everything
            for row in rows_of(
                {"extension": name, "multiple": m, "length": m * context},
                value if isinstance(value, str) else value.buckets(),
            )
        ],
    )


@dataclass(frozen=True)
class WindowLosses:
    """Windows of one length. nats and sizes: (stretches, windows of each, length), by position of the target.

    `again`: (stretches, windows, tokens), nats of the last quarter's tokens in windows of the training context.
    """

    multiple: int
    context: int
    nats: Floats
    sizes: Ints
    again: Floats
    extension: str = ""
    """Scaling of positions with which the windows were read; those of `again` were read without it."""

    @property
    def last_quarter(self) -> Floats:
        """Mean nats per token of the last quarter: (stretches,)."""
        return means(self.nats[..., -self.again.shape[-1] :])

    @property
    def gap(self) -> Floats:
        """Extrapolation gap in nats per token: (stretches,)."""
        return self.last_quarter - means(self.again)

    def buckets(self) -> Iterator[JsonObject]:
        """A row for each bucket of positions: targets predicted from `first` to `last` tokens."""
        for first, last in buckets(self.nats.shape[-1], self.context):
            nats, sizes = self.nats[..., first - 1 : last], self.sizes[..., first - 1 : last]
            bits, error = bits_per_byte(nats, sizes)
            yield {
                "first": first,
                "last": last,
                "tokens": nats.size,
                "bytes": int(sizes.sum()),
                "nats_per_token": mean(means(nats)),
                "stderr": stderr(means(nats)),
                "bits_per_byte": bits,
                "bits_per_byte_stderr": error,
            }

    def scores(self) -> Iterator[tuple[str, Score]]:
        """Task scores: the loss in the last quarter, and the gap if the window is longer than in training."""
        for metric, values in self.by_stretch():
            yield metric, loss_score(mean(values), stderr(values), len(self.nats))

    def by_stretch(self) -> Iterator[tuple[str, Floats]]:
        name = f"{self.multiple}x" + (f"_{self.extension}" if self.extension else "")
        yield f"loss_{name}", self.last_quarter
        if self.multiple > 1:
            yield f"extrapolation_gap_{name}", self.gap


def _read(reader: Reader, multiple: int, starts: Ints) -> WindowLosses | Reason:
    """Losses of the windows that begin at `starts`, or the reason why there are none."""
    length = multiple * reader.context
    if reason := reader.reason(length):
        return reason
    # the last quarter of each window, in pieces of a quarter of the training context, each read with the context before
    quarter = max(1, reader.context // 4)
    ends = starts[..., None] + length - quarter * np.arange(multiple)[::-1]
    return unless_out_of_memory(
        lambda: WindowLosses(
            multiple,
            reader.context,
            reader.nats(starts, length, length),
            reader.sizes(starts, length),
            reader.nats(ends - reader.context, reader.context, quarter).reshape(*starts.shape, -1),
        )
    )


def _extended(reader: Reader, scaling: str, plain: WindowLosses | Reason, starts: Ints) -> WindowLosses | Reason:
    """Losses of the windows of `plain` with a scaling by their multiple, or the reason why there are none."""
    if not isinstance(plain, WindowLosses):
        return plain
    length = plain.multiple * reader.context
    try:
        model = extended(reader.model, scaling, plain.multiple, reader.context)
    except SpecError as error:
        return str(error)
    return replace(plain, nats=replace(reader, model=model).nats(starts, length, length), extension=scaling)


def extended(model: Decoder, scaling: str, factor: float, original_length: int) -> Decoder:
    """Model with the same weights, and `scaling` by `factor` in every layer with rotary positions, replacing others.

    Raises SpecError if no layer has them, or if the scaling needs more than a factor and the original length.
    """
    weights = {name: value.detach() for name, value in model.state_dict().items()}
    fields = variants(SCALINGS)[scaling].model_fields
    given = {"factor": float(factor), "original_length": original_length}
    settings = {"kind": scaling} | {name: value for name, value in given.items() if name in fields}
    # Each distinct resolved block gets a name of its own, to which its layers refer, so that no layer misses the edit.
    names: dict[str, str] = {}
    pattern = [names.setdefault(_block(layer, settings), f"block{len(names) + 1}") for layer in model.spec.layers]
    if not any('"scaling"' in text for text in names):
        raise SpecError("", "no layer has rotary positions")
    blocks = {name: json.loads(text) for text, name in names.items()}
    whole = {"block": blocks.pop("block1"), "blocks": blocks, "first": [], "final_norm": model.spec.has_final_norm}
    pattern = ["block" if name == "block1" else name for name in pattern]
    return assemble(parse({**model.spec.dump(), **whole, "pattern": pattern}), weights)


def _block(layer: Any, scaling: SpecJson) -> str:
    data = layer.model_dump(mode="json")
    position = data["mixer"].get("position") or {}
    if "scaling" in position:
        position["scaling"] = dict(scaling)
    return json.dumps(data, sort_keys=True)
