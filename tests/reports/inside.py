"""What a figure draws and its axes leave out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reports.page.figures.base import GOES_ON, Figure
from reports.page.figures.drawing import axis_name

Axis = Mapping[str, Any]
ROOM = 1e-6
"""Share of an axis by which a rounded number may lie outside."""


def left_out(figure: Figure) -> list[str]:
    """Every mark and end of a curve outside the axes, for each choice of a switch, unless the note names its arm."""
    drawn = figure.drawing.to_plotly_json()
    found = list(_outside(figure, drawn["data"], drawn["layout"]))
    for switch in figure.switches:
        for option in switch.options:
            traces = [{**trace, **_of(option.traces, place)} for place, trace in enumerate(drawn["data"])]
            layout = {**drawn["layout"]}
            for path, value in option.layout.items():
                axis, _, rest = path.partition(".")
                if "axis" in axis and "." not in rest:
                    layout[axis] = {**layout.get(axis, {}), rest: value}
            found += [f"{switch.key} {option.label}: {each}" for each in _outside(figure, traces, layout)]
    return found


def _of(attributes: Mapping[str, Sequence[Any]], place: int) -> dict[str, Any]:
    """Attributes of one trace. Those of bars are dotted, as `error_x.array`."""
    return {path: values[place] for path, values in attributes.items()}


def _outside(figure: Figure, traces: Sequence[Mapping[str, Any]], layout: Mapping[str, Any]) -> Iterator[str]:
    for trace in traces:
        if trace.get("visible", True) is not True or trace.get("type") != "scatter":
            continue
        name = str(trace.get("legendgroup") or trace.get("name") or "")
        if name and f"{name} (" in figure.note:
            continue
        for letter in "xy":
            axis = layout.get(axis_name(str(trace.get(f"{letter}axis") or letter)), {})
            for value in _values(trace, letter, figure.note):
                if not _contains(axis, value):
                    yield f"{figure.key}: {name or 'a trace'} at {letter} = {value} outside {axis.get('range')}"
    for shape in layout.get("shapes", ()):
        for letter in "xy":
            reference = str(shape.get(f"{letter}ref", letter))
            if " domain" in reference or reference == "paper":
                continue
            for value in (shape[f"{letter}0"], shape[f"{letter}1"]):
                if not _contains(layout.get(axis_name(reference), {}), value):
                    yield f"{figure.key}: a line at {letter} = {value}"


def _values(trace: Mapping[str, Any], letter: str, note: str) -> Iterator[float]:
    """Positions that a reader looks for: marks with their bars, and the end of a curve."""
    places = [(i, value) for i, value in enumerate(trace.get(letter, ())) if isinstance(value, int | float)]
    if trace.get("fill"):
        return  # a band goes around its curve
    if "lines" in str(trace.get("mode", "lines")):
        yield from (value for _, value in places[-1:])
        return
    bars = trace.get(f"error_{letter}") or {}
    up, down = (trace.get(f"error_{letter}.{part}", bars.get(part)) or () for part in ("array", "arrayminus"))
    for i, value in places:
        yield value
        if GOES_ON not in note:
            yield from (value + length for length in up[i : i + 1])
            yield from (value - length for length in (down or up)[i : i + 1])


def _contains(axis: Axis, value: float) -> bool:
    ends = axis.get("range")
    if not ends or not math.isfinite(value) or axis.get("autorange") is True:
        return True
    place = math.log10(value) if axis.get("type") == "log" else value
    low, high = sorted(ends)
    room = ROOM * (high - low)
    return bool(low - room <= place <= high + room)
