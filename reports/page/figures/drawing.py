"""A figure as plotly.js takes it: traces and a layout, as plain data.

plotly's own objects check every attribute as it is set, which takes longer than all other work on a page. Tests have
plotly check the drawings of reports, and `ablate.StudyResult.figure` returns plotly objects.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeAlias

from reports.page.wording.arm_words import brief

Attributes: TypeAlias = dict[str, Any]
"""plotly attributes of a trace or a layout, or a figure of them as plotly.js takes it."""
Settings: TypeAlias = Mapping[str, Any]
"""Attributes to set; names may be dotted paths."""

PLAIN: Attributes = {"data": {"scatter": [{"type": "scatter"}]}}
"""plotly's template `none`, which has no colours and lines of its own."""


class Part(Attributes):
    """Attributes of a trace or of a part of the layout, by name. An unset attribute is None."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.get(name)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        found = cls()
        found.set(settings)
        return found

    def set(self, settings: Settings) -> None:
        """Set attributes. Mappings are merged, a name may be a dotted path, and None removes an attribute."""
        for name, value in settings.items():
            first, _, rest = name.partition(".")
            if rest:
                self._inner(first).set({rest: value})
            elif isinstance(value, Mapping):
                self._inner(first).set(value)
            elif value is None:
                self.pop(name, None)
            elif isinstance(value, list | tuple):
                self[name] = [Part.of(each) if isinstance(each, Mapping) else each for each in value]
            else:
                self[name] = value

    def _inner(self, name: str) -> Part:
        inner: Part = self.setdefault(name, Part())
        return inner


class Panel(NamedTuple):
    """The axes of one coordinate system: `x2` and `y2` for the second."""

    x: str
    y: str


class Drawing:
    """Traces in one panel, or in a grid of panels counted row by row."""

    def __init__(self, layout: Settings, columns: int = 1, panels: int = 1) -> None:
        self.data: list[Part] = []
        self.layout = Part.of(layout)
        self._columns = columns
        self._panels = [Panel(f"x{number}", f"y{number}") for number in ("", *range(2, panels + 1))]

    @classmethod
    def of(cls, figure: Attributes) -> Self:
        """A finished figure, as plotly.js takes it."""
        found = cls(figure["layout"])
        found.data = [Part.of(trace) for trace in figure["data"]]
        return found

    @classmethod
    def grid(cls, rows: int, columns: int, horizontal: float = 0.0, vertical: float = 0.0) -> Self:
        """Panels of equal size. horizontal and vertical: gaps between them, as a share of the whole."""
        found = cls({"template": PLAIN}, columns, rows * columns)
        across, up = _domains(columns, horizontal), _domains(rows, vertical)[::-1]
        for place, panel in enumerate(found._panels):
            row, column = divmod(place, columns)
            found.layout[axis_name(panel.x)] = Part(anchor=panel.y, domain=across[column])
            found.layout[axis_name(panel.y)] = Part(anchor=panel.x, domain=up[row])
        return found

    def name_panels(self, titles: Sequence[str], **attributes: Any) -> None:
        """A title above each panel."""
        for panel, title in zip(self._panels, titles, strict=False):
            x, y = (self.layout[axis_name(axis)].domain for axis in panel)
            middle = {"x": sum(x) / 2, "xanchor": "center", "y": y[1], "yanchor": "bottom"}
            self.add_annotation(text=title, xref="paper", yref="paper", showarrow=False, **{**middle, **attributes})

    def share_y(self) -> None:
        """Share the y axis of the first panel in each row."""
        for place, panel in enumerate(self._panels):
            if place % self._columns:
                first = self._panels[place - place % self._columns]
                self.layout[axis_name(panel.y)].set({"matches": first.y, "showticklabels": False})

    def add_scatter(self, *, row: int | None = None, col: int | None = None, **attributes: Any) -> None:
        self._add("scatter", row, col, attributes)

    def add_bar(self, **attributes: Any) -> None:
        self._add("bar", None, None, attributes)

    def add_heatmap(self, *, row: int | None = None, col: int | None = None, **attributes: Any) -> None:
        self._add("heatmap", row, col, attributes)

    def _add(self, kind: str, row: int | None, col: int | None, attributes: Attributes) -> None:
        trace = Part(type=kind)
        trace.set(attributes)
        if row is not None and col is not None:
            panel = self._panel(row, col)
            trace.set({"xaxis": panel.x, "yaxis": panel.y})
        self.data.append(trace)

    def _panel(self, row: int, col: int) -> Panel:
        return self._panels[(row - 1) * self._columns + col - 1]

    def add_vline(self, x: float, line: Attributes, row: int | None = None, col: int | None = None) -> None:
        """A vertical line across a panel, or across each panel that has traces."""
        for panel in self._drawn(row, col):
            self.add_shape(type="line", x0=x, x1=x, xref=panel.x, y0=0, y1=1, yref=f"{panel.y} domain", line=line)

    def add_hline(self, y: float, line: Attributes, name: str = "") -> None:
        """A horizontal line across each panel that has traces, with its name above its right end."""
        for panel in self._drawn(None, None):
            across = f"{panel.x} domain"
            self.add_shape(type="line", x0=0, x1=1, xref=across, y0=y, y1=y, yref=panel.y, line=line)
            if name:
                end = {"x": 1, "xanchor": "right", "xref": across, "y": y, "yanchor": "bottom", "yref": panel.y}
                self.add_annotation(text=name, showarrow=False, **end)

    def _drawn(self, row: int | None, col: int | None) -> Sequence[Panel]:
        if row is not None and col is not None:
            return [self._panel(row, col)]
        if len(self._panels) == 1:
            return self._panels
        drawn = {Panel(trace.xaxis, trace.yaxis) for trace in self.data}
        return [panel for panel in self._panels if panel in drawn]

    def add_shape(self, **attributes: Any) -> None:
        self.layout.setdefault("shapes", []).append(Part.of(attributes))

    def add_annotation(self, **attributes: Any) -> None:
        self.layout.setdefault("annotations", []).append(Part.of(attributes))

    def update_layout(self, settings: Settings | None = None, **more: Any) -> None:
        self.layout.set({**(settings or {}), **more})

    def update_xaxes(self, *, row: int | None = None, col: int | None = None, **settings: Any) -> None:
        """Set attributes of one panel's x axis, or of all."""
        for panel in self._panels if row is None or col is None else [self._panel(row, col)]:
            self.layout.set({axis_name(panel.x): settings})

    def update_yaxes(self, *, row: int | None = None, col: int | None = None, **settings: Any) -> None:
        """Set attributes of one panel's y axis, or of all."""
        for panel in self._panels if row is None or col is None else [self._panel(row, col)]:
            self.layout.set({axis_name(panel.y): settings})

    def update_traces(self, **settings: Any) -> None:
        for trace in self.data:
            trace.set(settings)

    def to_plotly_json(self) -> Attributes:
        """Traces and layout as plotly.js takes them."""
        return {"data": self.data, "layout": self.layout}


def axis_name(axis: str) -> str:
    """`xaxis2` for `x2`."""
    return f"{axis[0]}axis{axis[1:]}"


def _domains(count: int, between: float) -> list[list[float]]:
    """[start, end] of each of `count` equal parts of the whole."""
    size = (1.0 - between * (count - 1)) / count
    starts = [sum([size] * place) + place * between for place in range(count)]
    return [[start, min(1.0, start + size)] for start in starts]


# Common style of all figures, and escaping of text in them.

PALETTE = ("#2b83c6", "#e37502", "#862fff", "#d0066a", "#7f72f8", "#c28261", "#d60026", "#b683a9")
"""Colours that colour-blind readers can tell apart too, with a contrast of 3 to 1 to both backgrounds. Those that most
studies need come first."""
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star")
GRID = "rgba(128,128,128,0.22)"
BASE, BASE_MARK = "base", {"color": "#444", "size": 11, "symbol": "x"}
"""Name and marker of a search's base, the control."""
LONGEST_LABEL = 28
CONFIG: dict[str, bool | str | list[str]] = {
    "displaylogo": False,
    "responsive": True,
    "showSendToCloud": False,
    "showLink": False,
    "plotlyServerURL": "",
    "modeBarButtonsToRemove": [
        "sendDataToCloud",
        "sendChartToCloud",
        "toImage",
        "select2d",
        "lasso2d",
        "autoScale2d",
    ],
}
"""Plotly's configuration without logo, upload or anything else that could leave the page. The page has its own buttons
for saving pictures."""


@dataclass(frozen=True)
class ArmStyle:
    """Colour, dash and symbol of one arm in every figure; arms never differ by colour alone."""

    colour: str
    dash: str
    symbol: str
    label: str
    """Its name, escaped, shortened and unique."""

    def fill(self, opacity: float) -> str:
        """The colour with this opacity."""
        red, green, blue = (int(self.colour[i : i + 2], 16) for i in (1, 3, 5))
        return f"rgba({red},{green},{blue},{opacity})"


def looks(arms: Sequence[str]) -> dict[str, ArmStyle]:
    """One style per arm, by its index in the study, so that all figures agree."""
    named = {arm: label(name) for arm, name in brief(arms).items()}
    shortened = Counter(named.values())
    return {
        arm: ArmStyle(
            PALETTE[i % len(PALETTE)],
            DASHES[(i // len(PALETTE)) % len(DASHES)],
            SYMBOLS[(i + i // len(PALETTE)) % len(SYMBOLS)],
            named[arm] if shortened[named[arm]] == 1 else f"{named[arm]} ({i + 1})",
        )
        for i, arm in enumerate(arms)
    }


def label(text: str, longest: int = LONGEST_LABEL) -> str:
    """Escape text for a figure, since Plotly reads a subset of HTML in every label.

    The middle of a long text is left out: grid cells that begin alike differ at the end.
    """
    half = longest // 2
    short = text if len(text) <= longest else f"{text[:half]}…{text[-half + 1 :]}"
    return html.escape(" ".join(short.split()), quote=False)


def blank(x_title: str, y_title: str, height: int = 380) -> Drawing:
    """An empty figure with titled axes on a transparent background; the page sets the text colour."""
    axis = {"gridcolor": GRID, "zeroline": False, "linecolor": GRID, "automargin": True}
    title = {"standoff": 8, "font": {"size": 13}}
    return Drawing(
        {
            "template": PLAIN,
            "height": height,
            "margin": {"l": 56, "r": 12, "t": 36, "b": 48},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#333"},
            "hovermode": "closest",
            "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "orientation": "v"},
            "xaxis": {**axis, "title": {**title, "text": x_title}},
            "yaxis": {**axis, "title": {**title, "text": y_title}},
        }
    )
