"""Differences of an arm's loss from the baseline's, token by token."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from reports.judge.reading.collected import Collected
from reports.page.evaluations import EvaluationSection
from reports.page.wording import words
from reports.page.wording.table import Table, frame_table
from store.tables import Schema

Floats = NDArray[np.float64]
Pieces = tuple[tuple[str, ...], ...]
"""The tokens of each passage, as text."""

MOST_PASSAGES = 3
"""Number of passages shown in full: those that differ most, summed over all arms."""
CONTEXTS = 5
"""Number of tokens shown of either kind: where the arm gains most, and where it loses most."""
BEFORE = 12
"""Tokens of context shown before each of them."""
SHADES = (0.1, 0.5, 2.0)
CLASSES: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("space and line ends", lambda piece: not piece.strip()),
    ("digits", lambda piece: piece.strip().isdigit()),
    ("starts of words", lambda piece: piece[0].isspace() and piece.strip()[0].isalpha()),
    ("rest of words", lambda piece: piece[0].isalpha()),
    ("punctuation", lambda piece: True),
)
"""Classes of tokens and their tests; the first match counts."""


@dataclass(frozen=True)
class TokenKind:
    """Tokens of one kind. difference: arm − baseline in nats per token; `stderr` is over passages."""

    name: str
    tokens: int
    difference: float
    stderr: float | None


@dataclass(frozen=True)
class Excerpt:
    """A token, the text before it, and the difference there."""

    before: str
    piece: str
    difference: float


@dataclass(frozen=True)
class TokenDifferences:
    """An arm against the baseline, token by token, averaged over the seeds that both have.

    passages: (piece, difference) of each token; negative if the arm predicts it better.
    """

    arm: str
    seeds: int
    passages: tuple[tuple[tuple[str, float], ...], ...]
    parts: tuple[TokenKind, ...]
    best: tuple[Excerpt, ...]
    worst: tuple[Excerpt, ...]

    def table(self) -> Table:
        """Mean difference in loss for each kind of token."""
        rows = [
            (part.name, words.whole(part.tokens), words.signed(part.difference, 4), words.fixed(part.stderr, 4))
            for part in self.parts
        ]
        return frame_table(("kind of token", "tokens", "difference (nats/token)", "standard error over passages"), rows)


@dataclass(frozen=True)
class TokenLosses(EvaluationSection):
    """Token-by-token comparisons of arms whose passages have the same pieces. `reasons` say which arms have none, and
    why."""

    place: ClassVar[int] = 180
    title: ClassVar[str] = "Token by token"
    template: ClassVar[str] = "token_losses.html.j2"
    schema: ClassVar[Schema] = {
        "start": pl.Int64,
        "pieces": pl.List(pl.String),
        "nats": pl.List(pl.Float64),
        "reason": pl.String,
    }

    baseline: str
    differences: tuple[TokenDifferences, ...]
    reasons: tuple[tuple[str, str], ...]

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        rows, baseline = data.frames[cls.name()], data.study.baseline
        if rows.is_empty():
            return None
        passages = rows.drop_nulls("pieces")
        differences = tuple(_differences(passages, baseline))
        reasons = rows.drop_nulls("reason").select("arm", "reason").unique(maintain_order=True).iter_rows()
        arms = list(passages["arm"].unique(maintain_order=True))
        known = {baseline, *(each.arm for each in differences)}
        # arms with different tokenizers split the text differently
        why = f"its tokens or seeds differ from those of {baseline}"
        unlike = [(arm, why) for arm in arms if arm not in known and baseline in arms]
        return cls(baseline, differences, (*reasons, *unlike))

    @staticmethod
    def shade(difference: float) -> str:
        """CSS class for the size of a token's difference, with steps at 0.1, 0.5 and 2 nats."""
        size = sum(abs(difference) >= step for step in SHADES)
        return f"{'win' if difference < 0 else 'lose'}{size}" if size else ""


def _differences(passages: pl.DataFrame, baseline: str) -> Iterator[TokenDifferences]:
    runs = {
        (str(arm), int(str(seed))): (tuple(map(tuple, rows["pieces"].to_list())), np.array(rows["nats"].to_list()))
        for (arm, seed), rows in passages.group_by("arm", "seed", maintain_order=True)
    }
    pieces = next((found for found, _ in runs.values()), ())
    # all differences have shape (passages, tokens), as the pieces are the same
    same = {key: nats for key, (found, nats) in runs.items() if found == pieces}
    found: dict[str, tuple[Floats, int]] = {}
    for arm in dict.fromkeys(arm for arm, _ in runs):
        paired = sorted(seed for of, seed in same if of == arm and (baseline, seed) in same)
        if arm != baseline and paired:
            mean = np.mean([same[arm, seed] - same[baseline, seed] for seed in paired], axis=0)
            found[arm] = mean, len(paired)
    shown = []  # the passages that differ most
    if found:
        size = sum(np.abs(difference).sum(axis=1) for difference, _ in found.values())
        shown = sorted(np.argsort(-np.asarray(size), kind="stable")[:MOST_PASSAGES].tolist())
    for arm, (difference, seeds) in found.items():
        order = np.argsort(difference, axis=None, kind="stable").tolist()
        width = difference.shape[1]
        spots = []
        for row, place in (divmod(place, width) for place in (*order[:CONTEXTS], *order[-CONTEXTS:])):
            before = "".join(pieces[row][max(0, place - BEFORE) : place])
            spots.append(Excerpt(before, pieces[row][place], float(difference[row, place])))
        texts = (zip(pieces[place], difference[place].tolist(), strict=True) for place in shown)
        yield TokenDifferences(
            arm=arm,
            seeds=seeds,
            passages=tuple(map(tuple, texts)),
            parts=tuple(_parts(pieces, difference)),
            best=tuple(spot for spot in spots[:CONTEXTS] if spot.difference < 0),
            worst=tuple(spot for spot in spots[CONTEXTS:][::-1] if spot.difference > 0),
        )


def _parts(pieces: Pieces, difference: Floats) -> Iterator[TokenKind]:
    """All tokens, then each class, then quarters of the passage by position."""
    yield _part("all", np.ones(difference.shape, dtype=bool), difference)
    of = np.array([[class_of(piece) for piece in passage] for passage in pieces])
    for name, _ in CLASSES:
        if (of == name).any():
            yield _part(name, of == name, difference)
    width = difference.shape[1]
    for quarter in range(4 if width >= 4 else 0):
        first, last = quarter * width // 4, (quarter + 1) * width // 4
        within = np.zeros(difference.shape, dtype=bool)
        within[:, first:last] = True
        yield _part(f"tokens {first + 1} to {last}", within, difference)


def class_of(piece: str) -> str:
    """The class of a token. A piece without text is space."""
    return next(name for name, holds in CLASSES if holds(piece))


def _part(name: str, chosen: NDArray[np.bool_], difference: Floats) -> TokenKind:
    """Mean over the chosen tokens; passages are independent, tokens of one passage are not."""
    counts, sums = chosen.sum(axis=1), (difference * chosen).sum(axis=1)
    mean = float(sums.sum() / counts.sum())
    groups = int((counts > 0).sum())
    if groups < 2:
        return TokenKind(name, int(counts.sum()), mean, None)
    # ratio estimator with passages as clusters
    spread = float(np.square(sums - mean * counts).sum()) * groups / (groups - 1)
    return TokenKind(name, int(counts.sum()), mean, math.sqrt(spread) / float(counts.sum()))
