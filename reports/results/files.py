"""Reading recorded results."""

from __future__ import annotations

from pathlib import Path

from reports.judge.sentences import prefixed_range
from reports.results.document import RecordedResult
from store import StoreError, jsonfile
from store.errors import ReportError
from store.files import read_regular

REMEDY = "write it again: ablate report PATH --record"


def read(path: Path) -> RecordedResult:
    """Read a recorded result. Raises ReportError with file, field and expected value if it is invalid."""
    try:
        return jsonfile.record(read_regular(path), RecordedResult, str(path), REMEDY)
    except StoreError as error:
        raise ReportError(str(error)) from error
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror}") from error


# Sizes of recorded results, in words.


def size_of(result: RecordedResult) -> str:
    """`56 k parameters, 5 seeds, baseline between bigrams and trigrams`."""
    stands = f", baseline {result.standing}" if result.standing else ""
    return f"{prefixed_range(result.setting.parameters)} parameters, {result.setting.seeds} seeds{stands}"


def size_and_length(parameters: tuple[float, float], tokens: tuple[float, float]) -> str:
    """`56 k parameters · 9.9 to 10 tokens per parameter`, from (smallest, largest) pairs."""
    return f"{prefixed_range(parameters)} parameters · {prefixed_range(tokens)} tokens per parameter"
