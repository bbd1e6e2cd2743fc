"""What a reader can look at: samples, and where an arm's loss differs from the baseline's, token by token. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablate.store.documents import Section

Floats = NDArray[np.float64]
Sections = dict[str, dict[int, dict[str, Section]]]
"""Sections of evals documents by arm, seed and name."""
Rows = Sequence[Mapping[str, Any]]

MOST_PASSAGES = 3
"""Of those shown in full: the ones that differ most in sum over all arms."""
CONTEXTS = 5
"""Tokens shown of either kind, those where the arm wins most and those where it loses most."""
BEFORE = 12
"""Tokens of context before each of them."""
SHADES = (0.1, 0.5, 2.0)
CLASSES: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("space and line ends", lambda piece: not piece.strip()),
    ("digits", lambda piece: piece.strip().isdigit()),
    ("starts of words", lambda piece: piece[0].isspace() and piece.strip()[0].isalpha()),
    ("rest of words", lambda piece: piece[0].isalpha()),
    ("punctuation", lambda piece: True),
)
"""The first that holds."""


@dataclass(frozen=True)
class Prompt:
    """A prompt, the text that it is from, and what each arm wrote after it: (arm, text)."""

    prompt: str
    held_out: str
    written: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Part:
    """Tokens of one kind. difference: arm − baseline in nats per token; `stderr` is over passages."""

    name: str
    tokens: int
    difference: float
    stderr: float | None


@dataclass(frozen=True)
class Spot:
    """A token, what precedes it, and the difference there."""

    before: str
    piece: str
    difference: float


@dataclass(frozen=True)
class TokenDifferences:
    """An arm against the baseline, token by token, mean over the seeds that both have.

    passages: (piece, difference) of each token. Negative: the arm predicts it better.
    """

    arm: str
    seeds: int
    passages: tuple[tuple[tuple[str, float], ...], ...]
    parts: tuple[Part, ...]
    best: tuple[Spot, ...]
    worst: tuple[Spot, ...]


@dataclass(frozen=True)
class AttentionMap:
    """A layer of an arm's model of the first seed. heads: rows of 1, 2, … T weights; pieces: the T tokens."""

    arm: str
    layer: int
    pieces: tuple[str, ...]
    heads: tuple[tuple[tuple[float, ...], ...], ...]


@dataclass(frozen=True)
class Closeups:
    """`reasons` say which arms have nothing to show, and why."""

    seed: int | None
    temperature: float
    prompts: tuple[Prompt, ...]
    differences: tuple[TokenDifferences, ...]
    reasons: tuple[tuple[str, str], ...]
    attention: tuple[AttentionMap, ...]


def shade(difference: float) -> str:
    """How strongly a token is coloured, as a class of the page: at 0.1, 0.5 and 2 nats."""
    size = sum(abs(difference) >= step for step in SHADES)
    return f"{'win' if difference < 0 else 'lose'}{size}" if size else ""


def closeups(documents: Sections, baseline: str) -> Closeups:
    """Samples are those of the first seed that all arms with samples have."""
    seed, found = _samples(documents)
    first = next(iter(found.values()), Section(rows=()))
    prompts, differences = tuple(_prompts(found)), tuple(_differences(documents, baseline))
    unlike = tuple(_unlike(documents, found, baseline, prompts, {each.arm for each in differences}))
    return Closeups(
        seed=seed,
        temperature=float(first.about.get("temperature") or 0.0),
        prompts=prompts,
        differences=differences,
        reasons=(*_reasons(documents), *unlike),
        attention=tuple(_attention(documents)),
    )


def _rows(sections: Mapping[str, Section], name: str) -> Rows:
    """What there is of one section: none of what has a reason."""
    return [row for row in sections[name].rows if "reason" not in row] if name in sections else []


def _samples(documents: Sections) -> tuple[int | None, dict[str, Section]]:
    having = {
        arm: {seed: each["samples"] for seed, each in of.items() if _rows(each, "samples")}
        for arm, of in documents.items()
    }
    having = {arm: of for arm, of in having.items() if of}
    shared = set.intersection(*map(set, having.values())) if having else set()
    if not shared:
        return None, {}
    return min(shared), {arm: of[min(shared)] for arm, of in having.items()}


def _prompts(found: dict[str, Section]) -> Iterator[Prompt]:
    """Only prompts that are the same in all arms are side by side."""
    arms = list(found)
    every: list[Rows] = [section.rows for section in found.values()]
    for texts in zip(*every, strict=False):
        first = texts[0]
        if all(text["prompt"] == first["prompt"] for text in texts):
            written = tuple((arm, text["sample"]) for arm, text in zip(arms, texts, strict=True))
            yield Prompt(first["prompt"], first["held_out"], written)


def _reasons(documents: Sections) -> Iterator[tuple[str, str]]:
    for arm, of in documents.items():
        for kind in ("samples", "token_losses", "attention"):
            rows = [row for each in of.values() if kind in each for row in each[kind].rows]
            yield from ((arm, reason) for reason in sorted({str(row["reason"]) for row in rows if "reason" in row}))


def _unlike(
    documents: Sections,
    found: dict[str, Section],
    baseline: str,
    prompts: Sequence[Prompt],
    compared: set[str],
) -> Iterator[tuple[str, str]]:
    """Arms with tokenizers of their own cut the text into other pieces, at other places."""
    if found and not prompts:
        yield "samples", "the arms' prompts are not the same text"
    with_losses = [arm for arm, of in documents.items() if any(map(_passages, of.values()))]
    for arm in with_losses:
        if arm not in compared and arm != baseline and baseline in with_losses:
            yield arm, f"its tokens or its seeds are not those of {baseline}"


def _attention(documents: Sections) -> Iterator[AttentionMap]:
    for arm, of in documents.items():
        first = next((of[seed] for seed in sorted(of) if "attention" in of[seed]), {})
        for row in _rows(first, "attention"):
            heads = tuple(tuple(map(tuple, head)) for head in row["heads"])
            yield AttentionMap(arm, row["layer"], tuple(row["pieces"]), heads)


def _differences(documents: Sections, baseline: str) -> Iterator[TokenDifferences]:
    nats = {arm: dict(_nats(of)) for arm, of in documents.items()}
    pieces = next((_pieces(each) for of in documents.values() for each in of.values() if _passages(each)), ())
    same = {arm: {seed for seed in of if _pieces(documents[arm][seed]) == pieces} for arm, of in nats.items()}
    found: dict[str, tuple[Floats, int]] = {}
    for arm in documents:
        paired = sorted(same[arm] & same.get(baseline, set()))
        if arm != baseline and paired:
            found[arm] = np.mean([nats[arm][seed] - nats[baseline][seed] for seed in paired], axis=0), len(paired)
    shown = _most_different([difference for difference, _ in found.values()])
    for arm, (difference, seeds) in found.items():
        yield _of_arm(arm, seeds, pieces, difference, shown)


def _passages(sections: Mapping[str, Section]) -> Rows:
    return _rows(sections, "token_losses")


def _pieces(document: Mapping[str, Section]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(passage["pieces"]) for passage in _passages(document))


def _nats(of: Mapping[int, Mapping[str, Section]]) -> Iterator[tuple[int, Floats]]:
    """(seed, (passages, tokens))."""
    for seed, document in of.items():
        if passages := _passages(document):
            yield seed, np.array([passage["nats"] for passage in passages])


def _most_different(differences: Sequence[Floats]) -> list[int]:
    if not differences:
        return []
    size = sum(np.abs(difference).sum(axis=1) for difference in differences)
    return sorted(np.argsort(-np.asarray(size), kind="stable")[:MOST_PASSAGES].tolist())


def _of_arm(
    arm: str, seeds: int, pieces: tuple[tuple[str, ...], ...], difference: Floats, shown: list[int]
) -> TokenDifferences:
    order = np.argsort(difference, axis=None, kind="stable").tolist()
    width = difference.shape[1]
    spots = [_spot(pieces, difference, *divmod(place, width)) for place in (*order[:CONTEXTS], *order[-CONTEXTS:])]
    return TokenDifferences(
        arm=arm,
        seeds=seeds,
        passages=tuple(
            tuple((piece, float(value)) for piece, value in zip(pieces[i], difference[i], strict=True)) for i in shown
        ),
        parts=tuple(_parts(pieces, difference)),
        best=tuple(spot for spot in spots[:CONTEXTS] if spot.difference < 0),
        worst=tuple(spot for spot in spots[CONTEXTS:][::-1] if spot.difference > 0),
    )


def _spot(pieces: tuple[tuple[str, ...], ...], difference: Floats, row: int, place: int) -> Spot:
    before = "".join(pieces[row][max(0, place - BEFORE) : place])
    return Spot(before, pieces[row][place], float(difference[row, place]))


def _parts(pieces: tuple[tuple[str, ...], ...], difference: Floats) -> Iterator[Part]:
    """All tokens, then by class, then by how many tokens of the passage were read: in quarters."""
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
    """The class of a token. One that stands for no text is space."""
    return next(name for name, holds in CLASSES if holds(piece))


def _part(name: str, chosen: NDArray[np.bool_], difference: Floats) -> Part:
    """Mean over the chosen tokens; passages are independent, tokens of one are not."""
    counts, sums = chosen.sum(axis=1), (difference * chosen).sum(axis=1)
    mean = float(sums.sum() / counts.sum())
    groups = int((counts > 0).sum())
    if groups < 2:
        return Part(name, int(counts.sum()), mean, None)
    spread = float(np.square(sums - mean * counts).sum()) * groups / (groups - 1)
    return Part(name, int(counts.sum()), mean, math.sqrt(spread) / float(counts.sum()))
