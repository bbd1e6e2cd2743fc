"""Sizes of recorded results, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.page.wording.length_words import prefixed

if TYPE_CHECKING:
    from reports.results.document import RecordedResult


def size_of(result: RecordedResult) -> str:
    """`56 k parameters, 5 seeds, baseline between bigrams and trigrams`."""
    stands = f", baseline {result.standing}" if result.standing else ""
    return f"{_parameters(result.setting.parameters)}, {result.setting.seeds} seeds{stands}"


def size_and_length(parameters: tuple[float, float], tokens: tuple[float, float]) -> str:
    """`56 k parameters · 9.9 to 10 tokens per parameter`, from (smallest, largest) pairs."""
    return f"{_parameters(parameters)} · {_range(tokens)} tokens per parameter"


def _parameters(parameters: tuple[float, float]) -> str:
    return f"{_range(parameters)} parameters"


def _range(ends: tuple[float, float]) -> str:
    return " to ".join(dict.fromkeys(map(prefixed, ends)))
