"""Optuna's own figures of a search, in the look of the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import optuna
import plotly.graph_objects as go

from ablate.store.documents import TrialRecord
from reports.figures.base import Figure
from reports.figures.pareto import front_figure
from reports.figures.style import GRID, PALETTE, blank, setting_name
from reports.findings.importance import Importance, frozen, in_memory
from reports.findings.searches import SearchSummary
from reports.wording.table import Table

FEWEST = 3
"""With fewer scored trials there is nothing to draw."""
CONTOUR = 2
"""Settings in a contour: the most important ones."""

Drawer = Callable[[optuna.Study], go.Figure]


def draw_search(search: SearchSummary, importances: Sequence[tuple[Importance, ...]]) -> tuple[Figure, ...]:
    """Front or history, then for every objective parallel coordinates, slices, a contour and importances."""
    if len(search.scored) < FEWEST:
        return ()
    figures = list(_whole(search))
    for place, name in enumerate(search.objectives):
        figures += _of_objective(search, place, name, importances[place])
    return tuple(figures)


def _whole(search: SearchSummary) -> Iterator[Figure]:
    names = list(search.objectives)
    if len(names) == 2:
        yield front_figure(search)
    if len(names) == 3:
        study = _study(search, list(range(len(names))))
        drawing = _styled(optuna.visualization.plot_pareto_front(study, target_names=names), 480)
        note = (
            "Trials on the front (red) are not beaten in every objective by any other; darker ones came later."
            " Scores are from the search's own seeds; promote trials to confirm them."
        )
        yield _figure(search, "front", "Pareto front", note, drawing)
    for place, name in enumerate(names):
        note = "Scored trials by their number, and the best so far."
        yield _figure(search, f"history-{place}", f"History: {name}", note, _history(search, place, name))


def _history(search: SearchSummary, place: int, name: str) -> go.Figure:
    """Trials keep their numbers: optuna's own figure counts those that were scored."""
    known = [(t.number, v) for t in search.scored if (v := (t.values or ())[place]) is not None]
    known.sort()
    better = min if search.objectives[name] == "minimize" else max
    best = list(accumulate((value for _, value in known), better))
    numbers, drawing = [number for number, _ in known], blank("trial", name)
    drawing.add_scatter(
        x=numbers, y=[value for _, value in known], mode="markers", name="trial", marker_color=PALETTE[0]
    )
    line = {"color": PALETTE[1], "shape": "hv"}
    drawing.add_scatter(x=numbers, y=best, mode="lines", name="best so far", line=line, hoverinfo="skip")
    return drawing


def _of_objective(search: SearchSummary, place: int, name: str, found: Sequence[Importance]) -> Iterator[Figure]:
    study = _study(search, [place])
    varied = [path for path in search.document.space if any(path in t.params for t in search.scored)]
    parallel = optuna.visualization.plot_parallel_coordinate(study, params=varied, target_name=name)
    for axes in parallel.select_traces(selector={"type": "parcoords"}):
        for dimension in axes.dimensions[1:]:
            paths = [path for path in varied if path.startswith(dimension.label.removesuffix("..."))]
            dimension.label = setting_name(paths[0]) if len(paths) == 1 else dimension.label
    note = "One line per trial, by the value of every setting; darker lines are better."
    yield _figure(search, f"parallel-{place}", f"Parallel coordinates: {name}", note, _styled(parallel, 460))
    slices = _styled(optuna.visualization.plot_slice(study, params=varied, target_name=name), 420)
    yield _figure(
        search, f"slice-{place}", f"Slices: {name}", "Every setting by itself; darker trials came later.", slices
    )
    if found:
        yield _importance(search, place, name, found)
    shared = [each.path for each in found if each.share is not None][:CONTOUR]
    if len(shared) == CONTOUR:
        contour = _styled(optuna.visualization.plot_contour(study, params=shared, target_name=name), 440, scale=True)
        note = "Between trials this is interpolation, not measurement."
        yield _figure(search, f"contour-{place}", f"Contour: {name}", note, contour)


def _importance(search: SearchSummary, place: int, name: str, found: Sequence[Importance]) -> Figure:
    """Shares with their intervals: optuna's bars have none."""
    known = [each for each in reversed(found) if each.share is not None]
    drawing = blank("share of explained variance", "", 120 + 32 * len(known))
    drawing.add_bar(
        orientation="h",
        y=[each.path for each in known],
        x=[each.share for each in known],
        marker={"color": [PALETTE[0] if each.matters else GRID for each in known]},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [(each.high or 0) - (each.share or 0) for each in known],
            "arrayminus": [(each.share or 0) - (each.low or 0) for each in known],
        },
    )
    note = "fANOVA, with the middle 90 % of resampled trials. Grey: not shown to matter by the test."
    return _figure(search, f"importance-{place}", f"Importances: {name}", note, drawing)


def _figure(search: SearchSummary, key: str, title: str, note: str, drawing: go.Figure) -> Figure:
    rows = tuple((str(t.number), *(f"{v:.6g}" for v in t.values or () if v is not None)) for t in search.scored)
    return Figure(key, title, note, note, drawing, Table(("trial", *search.objectives), rows))


def _study(search: SearchSummary, places: Sequence[int]) -> optuna.Study:
    """An optuna study in memory of the scored trials, with some of their objectives."""
    ways = list(search.objectives.values())
    study = in_memory([ways[place] for place in places])
    study.add_trials(_numbered(trial, places) for trial in search.scored)
    return study


def _numbered(trial: TrialRecord, places: Sequence[int]) -> optuna.trial.FrozenTrial:
    values = trial.values or ()
    return frozen(trial, [value for place in places if (value := values[place]) is not None])


def _styled(drawing: go.Figure, height: int = 380, scale: bool = False) -> go.Figure:
    """The page's fonts and ground, and no title: the page has one. Of a path the last part is a title."""
    look = blank("", "", height)
    for each in (drawing.for_each_xaxis, drawing.for_each_yaxis):
        each(lambda axis: axis.title.update(text=setting_name(axis.title.text or "")))
    for trace in drawing.data:
        if trace.type == "parcoords":
            trace.update(tickfont={"size": 12}, labelfont={"size": 13})
    for trace in drawing.data:
        if not scale and "marker" in trace:
            trace.marker.showscale = False
        if not scale and trace.type == "parcoords":
            trace.line.showscale = False
    drawing.update_layout(
        template="none",
        title=None,
        height=height,
        width=None,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font=look.layout.font,
        margin={"l": 64, "r": 24, "t": 48, "b": 64},
        hovermode="closest",
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "title": None},
        modebar=look.layout.modebar,
    )
    drawing.update_xaxes(gridcolor=GRID, linecolor=GRID, zeroline=False, automargin=True)
    drawing.update_yaxes(gridcolor=GRID, linecolor=GRID, zeroline=False, automargin=True)
    return go.Figure(json.loads(drawing.to_json()))
