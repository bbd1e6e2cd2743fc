"""Writing recorded results, in files small enough to commit."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ablate.wings.results.document import RecordedCurve, RecordedResult
from store.errors import ReportError
from store.files import write_text

MOST_BYTES = 60_000
POINTS = (40, 20, 10, 0)
"""Numbers of points of a curve, tried in this order until the file fits."""
DIGITS = 5
LISTS = ("arms", "caveats", "effects", "contrasts", "rungs", "claims", "notes", "qualifiers")
"""Keys whose entries take one line each."""


def write(result: RecordedResult, folder: Path) -> Path:
    """Write `<study>@<scale>.json` into a folder and return its path. Curves keep as many points as the size limit
    allows.

    Raises ReportError if the file is too large to be committed even without curves.
    """
    path = folder / f"{result.name}.json"
    texts = (as_text(with_curves(result, points)) for points in POINTS)
    text = next((text for text in texts if len(text.encode()) <= MOST_BYTES), None)
    if text is None:
        raise ReportError(f"{path} would have more than {MOST_BYTES:,} bytes: {len(result.arms)} arms are too many")
    folder.mkdir(parents=True, exist_ok=True)
    return write_text(path, text)


def with_curves(result: RecordedResult, points: int) -> RecordedResult:
    """The same result with curves of at most `points` points, always including the last."""
    arms = []
    for arm in result.arms:
        curve, thinned = arm.curve, RecordedCurve()
        if points:
            step = max(1, math.ceil(len(curve.steps) / points))
            thinned = RecordedCurve(steps=curve.steps[::-1][::step][::-1], loss=curve.loss[::-1][::step][::-1])
        arms.append(arm.model_copy(update={"curve": thinned}))
    return result.model_copy(update={"arms": tuple(arms)})


def as_text(result: RecordedResult) -> str:
    """Strict JSON with sorted keys and one line per arm, so that a diff shows what changed."""
    plain = rounded(result.model_dump(mode="json"))
    lines = []
    for key, value in sorted(plain.items()):
        several = ",\n".join(f"  {_line(each)}" for each in value) if key in LISTS and value else ""
        lines.append(f" {json.dumps(key)}: " + (f"[\n{several}\n ]" if several else _line(value)))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _line(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)


def rounded(value: Any) -> Any:
    """The same plain data with numbers rounded to five significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return value
