"""Loss by position, up to several times the training context: what a model makes of places it was not trained on.

Held-out text is read in windows of `multiple` × training context, as one row of tokens in which a window may cross from
one document into the next. All windows lie in the same stretches of text, drawn with a seed, so that models and lengths
are asked for the same tokens. Errors are over stretches, since neighbouring windows are not independent.

The extrapolation gap asks what the longer window costs: the loss of the tokens in its last quarter, less the loss of
the same tokens read again in windows of the training context, of which they are the last quarter too. Text that is hard
or easy cancels. A model that reads past its training context without harm has a gap of 0, one that gains from what it
reads there a negative one. After Press et al. 2022, arXiv:2108.12409, who compare windows by their length.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor
from torch.nn import functional as F

from evals.causal import check_causal
from evals.harness import Evaluation
from evals.lm import evaluating
from evals.spec import PositionsSpec
from evals.speed import is_out_of_memory
from evals.stderr import jackknife_stderr
from zoo.costs import longest_text
from zoo.loss import chunks_for
from zoo.model import Decoder

TASK = "positions"
"""Its scores stand among those of the tasks, under this name."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class PositionLoss(NamedTuple):
    """`document` is what the evals document keeps under `positions`; `scores` and `samples` are as a task's."""

    document: dict[str, Any]
    scores: dict[str, dict[str, Any]]
    samples: list[dict[str, Any]]

    def beside(self, evaluation: Evaluation) -> Evaluation:
        """An evaluation, and this in it."""
        tasks = evaluation.document["tasks"] | ({TASK: self.scores} if self.scores else {})
        document = evaluation.document | {"tasks": tasks, "positions": self.document}
        return Evaluation(document, [*evaluation.samples, *self.samples])


@dataclass(frozen=True)
class Text:
    """Held-out text as a model is trained on it: one row of tokens, and the bytes that each stands for."""

    tokens: NDArray[Any]
    sizes: NDArray[Any]


def loss_by_position(
    model: Decoder, text: Text, spec: PositionsSpec, *, context: int, batch: int, seed: int
) -> PositionLoss:
    """Read `text` at every multiple of `context`, the training context; `batch` windows of that length at a time.

    The same arguments give the same numbers. A length that the model or the text has no room for has a reason.
    """
    check_causal(model.spec)
    reader = _Reader(model, text, context, batch)
    fitting = [m for m in spec.multiples if m * context < len(text.tokens)]
    longest = max(fitting, default=0) * context
    stretches = _stretches(len(text.tokens), longest, spec.tokens, seed) if fitting else np.empty(0, dtype=np.int64)
    found = {m: reader.read(m, stretches, longest // (m * context)) for m in spec.multiples}
    document = {
        "context": context,
        "stretches": len(stretches),
        "stretch_tokens": longest,
        "windows": [
            {"multiple": m, "length": m * context} | (value.document() if isinstance(value, Reading) else value)
            for m, value in found.items()
        ],
    }
    readings = [value for value in found.values() if isinstance(value, Reading)]
    samples = [_sample(int(start), row, readings) for row, start in enumerate(stretches)] if readings else []
    return PositionLoss(document, {k: v for each in readings for k, v in each.scores().items()}, samples)


def _stretches(tokens: int, length: int, wanted: int, seed: int) -> Ints:
    """Where stretches of `length` targets begin, none overlapping another: about `wanted` tokens, at least one."""
    slots = (tokens - 1) // length
    count = min(slots, max(1, wanted // length))
    return np.sort(np.random.default_rng(seed).choice(slots, count, replace=False)) * length


@dataclass(frozen=True)
class Reading:
    """Windows of one length. nats and sizes: (stretches, windows of each, length), by position of the target.

    `again`: (stretches, windows, tokens) are the nats of the last quarter in windows of the training context.
    """

    multiple: int
    context: int
    nats: Floats
    sizes: Ints
    again: Floats

    @property
    def last_quarter(self) -> Floats:
        """(stretches,): mean nats per token."""
        return _means(self.nats[..., -self.again.shape[-1] :])

    @property
    def gap(self) -> Floats:
        """(stretches,): nats per token that the longer window costs the tokens of its last quarter."""
        return self.last_quarter - _means(self.again)

    def document(self) -> dict[str, Any]:
        buckets = _buckets(self.nats.shape[-1], self.context)
        return {
            "nats_per_token": _mean(_means(self.nats)),
            "bits_per_byte": _bits_per_byte(self.nats, self.sizes)[0],
            "last_quarter": _with_error(self.last_quarter),
            "gap": _with_error(self.gap) if self.multiple > 1 else None,
            "buckets": [self._bucket(first, last) for first, last in buckets],
        }

    def _bucket(self, first: int, last: int) -> dict[str, Any]:
        """Targets that were predicted from `first` to `last` tokens."""
        nats, sizes = self.nats[..., first - 1 : last], self.sizes[..., first - 1 : last]
        bits, error = _bits_per_byte(nats, sizes)
        return {
            "first": first,
            "last": last,
            "tokens": nats.size,
            "bytes": int(sizes.sum()),
            "nats_per_token": _mean(_means(nats)),
            "stderr": _stderr(_means(nats)),
            "bits_per_byte": bits,
            "bits_per_byte_stderr": error,
        }

    def scores(self) -> dict[str, dict[str, Any]]:
        """As a task's: the loss in the last quarter, and the gap where the window is longer than in training."""
        shared = {"higher_is_better": False, "chance": None, "items": len(self.nats)}
        return {metric: _with_error(values) | shared for metric, values in self.by_stretch()}

    def by_stretch(self) -> Iterator[tuple[str, Floats]]:
        yield f"loss_{self.multiple}x", self.last_quarter
        if self.multiple > 1:
            yield f"extrapolation_gap_{self.multiple}x", self.gap


@dataclass(frozen=True)
class _Reader:
    model: Decoder
    text: Text
    context: int
    batch: int

    def read(self, multiple: int, stretches: Ints, windows: int) -> Reading | dict[str, str]:
        """`windows` windows from the start of each stretch, or the reason why there are none."""
        length = multiple * self.context
        if reason := self._reason(length):
            return {"reason": reason}
        starts = stretches[:, None] + np.arange(windows) * length
        try:
            nats = self._nats(starts, length, length)
            again = self._again(starts, multiple)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            return {"reason": f"out of memory: {str(error).splitlines()[0]}"}
        sizes = self.text.sizes[starts[..., None] + np.arange(1, length + 1)].astype(np.int64)
        return Reading(multiple, self.context, nats, sizes, again)

    def _reason(self, length: int) -> str | None:
        end, tokens = longest_text(self.model.spec), len(self.text.tokens)
        if end is not None and length > end:
            return f"positions end at {end}"
        if length >= tokens:
            return f"held-out text has {tokens} tokens, and a window takes {length + 1}"
        return None

    def _again(self, starts: Ints, multiple: int) -> Floats:
        """The last quarter of each window, a quarter of the training context at a time, which precedes it."""
        quarter = max(1, self.context // 4)
        ends = starts[..., None] + multiple * self.context - quarter * np.arange(multiple)[::-1]
        return self._nats(ends - self.context, self.context, quarter).reshape(*starts.shape, -1)

    def _nats(self, starts: Ints, length: int, scored: int) -> Floats:
        """(*starts.shape, scored): nats of the last targets of windows that read `length` tokens."""
        windows = self.text.tokens[starts.reshape(-1, 1) + np.arange(length + 1)].astype(np.int64)
        # Scores of attention grow with the square of the length: what they take stays the same.
        rows = max(1, self.batch * self.context**2 // length**2)
        with evaluating(self.model):
            parts = [_token_nats(self.model, chunk, scored) for chunk in torch.from_numpy(windows).split(rows)]
        return np.concatenate(parts).reshape(*starts.shape, scored)


def _token_nats(model: Decoder, windows: Tensor, scored: int) -> Floats:
    """windows: (B, T + 1) → (B, scored): −ln p of the last targets, in float32 where the model is."""
    windows = windows.to(model.embedding.weight.device)
    targets = windows[:, -scored:].flatten()
    hidden = model.hidden(windows[:, :-1])[:, -scored:].flatten(0, 1)
    chunks = chunks_for(len(targets), model.spec.vocab_size)
    pairs = zip(hidden.chunk(chunks), targets.chunk(chunks), strict=True)
    nats = torch.cat([_cross_entropy(model.read_out(rows), goals) for rows, goals in pairs])
    return nats.view(len(windows), scored).double().cpu().numpy()


def _cross_entropy(logits: Tensor, goals: Tensor) -> Tensor:
    return F.cross_entropy(logits if logits.dtype == torch.float64 else logits.float(), goals, reduction="none")


def _buckets(length: int, context: int) -> list[tuple[int, int]]:
    """(first, last) numbers of tokens read: up to each power of two. None crosses the training context."""
    powers = (2**k for k in range(length.bit_length()))
    ends = sorted({end for end in (*powers, context, length) if end <= length})
    return list(zip([1, *(end + 1 for end in ends)], ends, strict=False))


def _sample(start: int, row: int, readings: Sequence[Reading]) -> dict[str, Any]:
    """One stretch as an item, for paired tests."""
    values = {metric: _finite(values[row]) for each in readings for metric, values in each.by_stretch()}
    item = {"document": None, "doc_id": row, "doc_hash": f"token {start}", "filter": "none"}
    return {"task": TASK, **item, "target": "", "filtered_resps": [], **values}


def _means(nats: Floats) -> Floats:
    """(stretches, …) → (stretches,)."""
    out: Floats = nats.mean(axis=tuple(range(1, nats.ndim)))
    return out


def _with_error(values: Floats) -> dict[str, float | None]:
    return {"value": _mean(values), "stderr": _stderr(values)}


def _mean(values: Floats) -> float | None:
    return _finite(values.mean())


def _stderr(values: Floats) -> float | None:
    return _finite(stats.sem(values)) if len(values) > 1 else None


def _bits_per_byte(nats: Floats, sizes: Ints) -> tuple[float | None, float | None]:
    """Σ nats / (Σ bytes · ln 2) with its error; None where there are no bytes: `eos` stands for none."""
    log_p, counts = -nats.sum(axis=(1, 2)), sizes.sum(axis=(1, 2))
    total = counts.sum()
    if total == 0:
        return None, None
    value = _finite(-log_p.sum() / total / math.log(2))
    if value is None or (counts == total).any():
        return value, None
    items = list(zip(log_p.tolist(), counts.tolist(), strict=True))
    return value, jackknife_stderr("bits_per_byte", items, range(len(items)))


def _finite(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None
