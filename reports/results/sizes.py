"""Sizes of recorded results, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.judge.sentences import prefixed_range

if TYPE_CHECKING:
    from reports.results.document import RecordedResult


def size_of(result: RecordedResult) -> str:
    """`56 k parameters, 5 seeds, baseline between bigrams and trigrams`."""
    stands = f", baseline {result.standing}" if result.standing else ""
    return f"{prefixed_range(result.setting.parameters)} parameters, {result.setting.seeds} seeds{stands}"


def size_and_length(parameters: tuple[float, float], tokens: tuple[float, float]) -> str:
    """`56 k parameters · 9.9 to 10 tokens per parameter`, from (smallest, largest) pairs."""
    return f"{prefixed_range(parameters)} parameters · {prefixed_range(tokens)} tokens per parameter"
