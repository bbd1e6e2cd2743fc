"""Windows of held-out text: common code of the evaluations of its loss.

All windows lie in the same stretches of text, drawn with a seed, so that all models and window lengths predict the same
tokens. Standard errors are over stretches, since neighbouring windows are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, PositiveInt
from torch import Tensor
from torch.nn import functional as F

from evals.costs.memory import is_out_of_memory
from evals.found import counted
from evals.reading.passes import Batches, Rows, evaluating
from store.documents import JsonObject, JsonScalar, SampleRecord, Score
from zoo.loss import chunks_for
from zoo.model import Decoder
from zoo.settings.field_tags import MOST
from zoo.spec import longest_text

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Result = TypeVar("Result")
Reason: TypeAlias = str
"""Reason why there is no result."""
Multiples = Annotated[
    tuple[Annotated[PositiveInt, MOST], ...],
    Field(min_length=1, max_length=16, strict=False),
    AfterValidator(lambda multiples: tuple(sorted(set(multiples)))),
]
"""Lengths of windows, as multiples of the training context, ascending and without duplicates."""


@dataclass(frozen=True)
class Text:
    """Held-out text in the form of training text: one row of tokens, and the number of bytes of each.

    before: tokens that the model expects before every text (see `evals.conventions`).
    """

    tokens: NDArray[Any]
    sizes: NDArray[Any]
    before: tuple[int, ...] = ()

    def windows(self, starts: Ints, targets: int) -> Ints:
        """Tokens to read to predict the `targets` tokens after each start, and the last target: (*starts.shape, R + 1).

        The tokens `before` every text replace a window's first token, which is not predicted, as in llama.cpp's
        `perplexity`. So all models predict the same tokens.
        """
        found: Ints = self.tokens[starts[..., None] + np.arange(targets + 1)].astype(np.int64)
        if not self.before:
            return found
        before = np.broadcast_to(np.array(self.before), (*starts.shape, len(self.before)))
        return np.concatenate([before, found[..., 1:]], axis=-1)

    def read(self, targets: int) -> int:
        """R: number of tokens to read to predict `targets` tokens."""
        return targets - 1 + max(1, len(self.before))


@dataclass(frozen=True)
class Reader:
    """Reads windows of a text: `batch` rows of `context` tokens per pass, and as many rows of another length as take
    the same memory for attention scores."""

    model: Decoder
    text: Text
    context: int
    batch: int

    @staticmethod
    def of(model: Decoder, text: Text, context: int, batch: Rows) -> Reader:
        return Reader(model, text, context, Batches(batch, model.spec.vocab_size).rows(context))

    def about(self, stretches: Stretches) -> dict[str, JsonScalar]:
        """Properties common to everything read in these stretches."""
        return {"context": self.context, "stretches": len(stretches.starts), "stretch_tokens": stretches.length}

    def item(self, task: str, stretches: Stretches, row: int, metrics: JsonObject) -> SampleRecord:
        """Record of one stretch, for paired tests. Its name includes its bytes, since tokenizers cut differently."""
        first = int(stretches.starts[row])
        start, end = (int(self.text.sizes[:place].sum()) for place in (first, first + stretches.length))
        name = f"token {first}, bytes {start} to {end}"
        return SampleRecord(task=task, doc_id=row, doc_hash=name, metrics=metrics)

    def reason(self, length: int) -> str | None:
        """Reason why windows of `length` targets cannot be read; None if they can."""
        end, tokens = longest_text(self.model.spec), len(self.text.tokens)
        if end is not None and self.text.read(length) > end:
            return f"reads at most {end} tokens"
        if length >= tokens:
            return f"held-out text has {tokens} tokens, and a window needs {length + 1}"
        return None

    def nats(self, starts: Ints, length: int, scored: int) -> Floats:
        """Nats of the last `scored` targets of windows of `length` targets: (*starts.shape, scored)."""
        # Attention scores grow with the square of the length: this keeps their memory constant.
        rows = max(1, self.batch * self.context**2 // length**2)
        windows = torch.from_numpy(self.text.windows(starts.reshape(-1), length))
        with evaluating(self.model):
            parts = [token_nats(self.model, chunk, scored) for chunk in counted(windows.split(rows))]
        return np.concatenate(parts).reshape(*starts.shape, scored)

    def sizes(self, starts: Ints, length: int) -> Ints:
        """Bytes of the targets: (*starts.shape, length)."""
        found: Ints = self.text.sizes[starts[..., None] + np.arange(1, length + 1)].astype(np.int64)
        return found


@dataclass(frozen=True)
class Stretches:
    """Starts of stretches of `length` targets."""

    starts: Ints
    length: int

    def windows(self, length: int) -> Ints:
        """Starts of windows of this length: (stretches, windows per stretch)."""
        return self.starts[:, None] + np.arange(self.length // length) * length


def stretches(tokens: int, lengths: Sequence[int], wanted: int, seed: int) -> Stretches:
    """Non-overlapping stretches of the longest of these lengths for which the text has room: about `wanted` tokens in
    total, at least one stretch; none if the text is shorter than all lengths."""
    length = max((length for length in lengths if length < tokens), default=0)
    if not length:
        return Stretches(np.empty(0, dtype=np.int64), 0)
    slots = (tokens - 1) // length
    count = min(slots, max(1, wanted // length))
    return Stretches(np.sort(np.random.default_rng(seed).choice(slots, count, replace=False)) * length, length)


def unless_out_of_memory(read: Callable[[], Result]) -> Result | Reason:
    """Result of `read`, or the reason why it ran out of memory."""
    try:
        return read()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return f"out of memory: {str(error).splitlines()[0]}"


def token_nats(model: Decoder, windows: Tensor, scored: int) -> Floats:
    """−ln p of the last `scored` targets of windows (B, T + 1): (B, scored), in float32, or float64 if the model is."""
    windows = windows.to(model.device)
    return target_nats(model, model.hidden(windows[:, :-1])[:, -scored:], windows[:, -scored:])


def target_nats(model: Decoder, hidden: Tensor, targets: Tensor) -> Floats:
    """hidden: (B, T, D), targets: (B, T) → −ln p of each target: (B, T)."""
    chunks = chunks_for(targets.numel(), model.spec.vocab_size)
    pairs = zip(hidden.flatten(0, 1).chunk(chunks), targets.flatten().chunk(chunks), strict=True)
    nats = []
    for rows, goals in pairs:
        logits = model.read_out(rows)
        exact = logits if logits.dtype == torch.float64 else logits.float()
        nats.append(F.cross_entropy(exact, goals, reduction="none"))
    return torch.cat(nats).view(targets.shape).double().cpu().numpy()


def buckets(length: int, context: int) -> list[tuple[int, int]]:
    """(first, last) of the buckets of 1 … length, which end at powers of two and at the training context."""
    powers = (2**k for k in range(length.bit_length()))
    ends = sorted({end for end in (*powers, context, length) if end <= length})
    return list(zip([1, *(end + 1 for end in ends)], ends, strict=False))


def rows_of(shared: JsonObject, found: Iterable[JsonObject] | Reason) -> list[JsonObject]:
    """Table rows of one length; a single row with the reason if its windows could not be read."""
    return [{**shared, **row} for row in ([{"reason": found}] if isinstance(found, str) else found)]


def loss_score(value: float | None, stderr: float | None, stretches: int) -> Score:
    """Score of a loss over stretches, without a chance level."""
    return Score(value=value, stderr=stderr, higher_is_better=False, chance=None, items=stretches)


def means(nats: Floats) -> Floats:
    """Mean of each stretch: (stretches, …) → (stretches,)."""
    out: Floats = nats.mean(axis=tuple(range(1, nats.ndim)))
    return out


def mean(values: Floats) -> float | None:
    return finite(values.mean())


def stderr(values: Floats) -> float | None:
    return finite(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None


def ratio(values: Floats, weights: Floats | Ints) -> tuple[float | None, float | None]:
    """Σ values / Σ weights over stretches of unequal weight, with its delete-one-stretch jackknife error
    √((n − 1)/n · Σ (θ₍ᵢ₎ − θ̄)²); None where a divisor would be 0. Efron & Tibshirani 1993, chapter 11."""
    value, weight, n = values.sum(), weights.sum(), len(values)
    if weight == 0:
        return None, None
    if n < 2 or (weights == weight).any():
        return finite(value / weight), None
    left_out = (value - values) / (weight - weights)
    return finite(value / weight), finite(np.sqrt((n - 1) * left_out.var()))


def bits_per_byte(nats: Floats, sizes: Ints) -> tuple[float | None, float | None]:
    """Σ nats / (Σ bytes · ln 2) with its standard error over stretches, the first axis; None without bytes (`eos` has
    none)."""
    rest = tuple(range(1, nats.ndim))
    return ratio(nats.sum(axis=rest) / math.log(2), sizes.sum(axis=rest))


def finite(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None
