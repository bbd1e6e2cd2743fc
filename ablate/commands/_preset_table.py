"""Presets as a table: a line each where the terminal has room for the last columns, else those are a line below."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from ablate.commands._traits import PATHS, mark, preset_row, tricks
from zoo.presets import Preset

TITLES = {
    "name": "preset",
    "year": "year",
    "norm": "norm",
    "topology": "topology",
    "placement": "placed",
    "position": "position",
    "activation": "activation",
}
"""Key of a row and title of its column."""
GAP, INDENT, RULE, UNBROKEN = "  ", "      ", "─", "\N{NO-BREAK SPACE}"
UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))
ROOM = 30
"""Characters that the last column needs to be beside the others."""
LEGEND = (
    "* assumed, not in the source; † stands in for what the zoo lacks. Size: parameters, counted from the spec. "
    "`ablate zoo NAME` shows a preset in full and says where its values are from."
)


def preset_table(presets: Sequence[Preset], width: int) -> Iterator[str]:
    """Lines that fit a terminal of `width` characters, from 80."""
    rows = [list(TITLES.values()), *map(_cells, presets)]
    sizes = ["size", *(large(preset_row(preset)["parameters"]) for preset in presets)]
    more = ["tricks", *map(_tricks, presets)]
    left, right = _aligned(rows), max(map(len, sizes))
    beside = len(left[0]) + right + 2 * len(GAP) + ROOM <= width
    for number, (cells, size, last) in enumerate(zip(left, sizes, more, strict=True)):
        if beside:
            start = f"{cells}{GAP}{size:>{right}}{GAP}"
            yield from _wrapped(last, start, " " * len(start), width)
        else:
            yield cells.rstrip()
            yield from _wrapped(", ".join(filter(None, (size, last))), INDENT, INDENT, width)
        if number == 0:
            yield RULE * width
    yield from ("", *textwrap.wrap(LEGEND, width))


def large(count: float | None) -> str:
    """1.56B, 117M, 824K."""
    if count is None:
        return "–"
    unit, letter = next(((unit, letter) for unit, letter in UNITS if count >= unit), UNITS[-1])
    return f"{count / unit:#.3g}".rstrip(".") + letter


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [GAP.join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)) for row in rows]


def _cells(preset: Preset) -> list[str]:
    row = preset_row(preset)
    row["topology"] = (row["topology"] or "").partition("_")[0]
    return [f"{row[key] or ''}{mark(preset, PATHS[key]) if key in PATHS else ''}" for key in TITLES]


def _tricks(preset: Preset) -> str:
    """Each in one piece, so that lines are broken between them only."""
    told = tricks(preset.spec) if preset.buildable else []
    return ", ".join(words.replace(" ", UNBROKEN) + mark(preset, path) for path, words in told)


def _wrapped(words: str, first: str, later: str, width: int) -> list[str]:
    lines = textwrap.wrap(
        words, width, initial_indent=first, subsequent_indent=later, break_on_hyphens=False, break_long_words=False
    )
    return [line.replace(UNBROKEN, " ") for line in lines] or [first.rstrip()]
