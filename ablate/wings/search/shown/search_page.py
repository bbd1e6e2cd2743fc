"""The report of a search: one self-contained HTML file that makes no network requests, with figures of its front or
history, and of its trials by setting.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Literal

import optuna
import plotly.graph_objects as go
from optuna.study import StudyDirection

from ablate.wings.search.documents import SearchFolder, TrialRecord
from ablate.wings.search.shown import search_words
from ablate.wings.search.shown.search_summary import SearchSummary, read_search
from ablate.wings.search.shown.search_words import closing_table, objective_title
from ablate.wings.search.shown.setting_axes import parallel, setting_axes, slices
from reports.page.figures.base import Figure
from reports.page.figures.drawing import BASE, BASE_MARK, CONFIG, GRID, PALETTE, Attributes, Drawing, blank, label
from reports.page.html.page import drawn
from reports.page.html.templating import FIGURES
from reports.page.html.templating import render as render_template
from reports.page.wording.arm_words import setting_name
from reports.page.wording.table import Table
from store.documents import JsonObject


def render(folder: Path) -> Path:
    """Write a search's page into its folder."""
    return SearchFolder(folder).write_report(render_page(read_search(folder)))


def render_page(search: SearchSummary) -> str:
    """The page as HTML text. All text from a study is escaped."""
    figures = draw_search(search)
    lead, *others = figures or (None,)
    source = f"{search.document.name} at {search.document.scale}"
    data = {
        "config": CONFIG,
        "figures": {figure.key: drawn(figure, source, f"search-{source}") for figure in figures},
        "trials": [_trial(search, trial) for trial in search.trials],
    }
    return render_template(
        "search.html.j2",
        (*FIGURES, "trials.js"),
        data,
        own=Path(__file__).parent,
        search=search,
        words=search_words,
        tables=search_words,
        lead=lead,
        figures=others,
        front=search_words.trials_table(search, search.best),
    )


def _trial(search: SearchSummary, trial: TrialRecord) -> JsonObject:
    """A trial and its runs, for the page's details."""
    runs = [search.runs[digest] for digest in trial.runs if digest in search.runs]
    return {
        "number": trial.number,
        "state": trial.state,
        "error": trial.error,
        "scores": dict(zip(search.objectives, trial.values or (None,) * len(search.objectives), strict=True)),
        "settings": {**trial.settings},
        "runs": [
            {
                "seed": run.seed,
                "status": run.status,
                "logs": f"ablate logs {run.digest}",
                "steps": list(run.steps),
                "losses": list(run.losses),
            }
            for run in runs
        ],
    }


FEWEST = 3
"""Fewest scored trials for a figure."""


def draw_search(search: SearchSummary) -> tuple[Figure, ...]:
    """Front or history, then for every objective parallel coordinates and slices."""
    if len(search.scored) < FEWEST:
        return ()
    with silenced():
        figures = list(_whole(search))
        for place, name in enumerate(search.objectives):
            figures += _of_objective(search, place, name)
    return tuple(figures)


@contextmanager
def silenced() -> Iterator[None]:
    """Suppress optuna's log messages below level ERROR: pages and progress output already report what matters."""
    logger = logging.getLogger("optuna")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _whole(search: SearchSummary) -> Iterator[Figure]:
    names = list(search.objectives)
    if len(names) == 2:
        yield front_figure(search)
    if len(names) == 3:
        study = optuna.create_study(directions=[StudyDirection[way.upper()] for way in search.objectives.values()])
        study.add_trials(optuna.trial.create_trial(values=list(trial.scores)) for trial in search.scored)
        drawn = optuna.visualization.plot_pareto_front(study, target_names=names)
        if search.base:
            x, y, z = ([score] for score in search.base.scores)
            drawn.add_scatter3d(x=x, y=y, z=z, mode="markers", name=BASE, marker={**BASE_MARK, "size": 6})
        drawing = _styled(drawn)
        note = (
            "Red: trials on the Pareto front, which no other trial beats in every objective. Darker ones came later."
            " Scores are from the search's own seeds; promote trials to confirm them."
        )
        yield _figure(search, "front", "Pareto front", note, drawing)
    for place, name in enumerate(names):
        note = "Scored trials by their number, and the best so far. Click a trial for its runs."
        yield _figure(search, f"history-{place}", f"History: {name}", note, _history(search, place, name))


def _history(search: SearchSummary, place: int, name: str) -> Drawing:
    """Scores by trial number, and the best so far. optuna's own figure renumbers the scored trials."""
    known = [(t.number, v) for t in search.scored if (v := (t.values or ())[place]) is not None]
    known.sort()
    better = min if search.objectives[name] == "minimize" else max
    best = list(accumulate((value for _, value in known), better))
    numbers, drawing = [number for number, _ in known], blank("trial", objective_title(name))
    drawing.add_scatter(
        x=numbers,
        y=[value for _, value in known],
        customdata=numbers,
        mode="markers",
        name="trial",
        marker={"color": PALETTE[0]},
        hovertemplate="trial %{x}: %{y:.5g}<extra></extra>",
    )
    drawing.update_xaxes(tickformat="d")
    line = {"color": PALETTE[1], "shape": "hv"}
    drawing.add_scatter(x=numbers, y=best, mode="lines", name="best so far", line=line, hoverinfo="skip")
    base = search.document.base.values
    value = base[place] if base else None
    if value is not None:  # unlike the trials, the base was not selected
        drawing.add_hline(y=value, line={"color": "#444", "width": 1, "dash": "dash"}, name=BASE)
    return drawing


def _of_objective(search: SearchSummary, place: int, name: str) -> Iterator[Figure]:
    base, title = search.base, objective_title(name)
    trials = [*search.scored, *([base] if base and base not in search.scored else [])]
    scores = [trial.scores[place] for trial in trials]
    axes = setting_axes(trials, list(search.document.space))
    ways: dict[str, Literal["low", "high"]] = {"minimize": "low", "maximize": "high"}
    better = ways[search.objectives[name]] if search.is_judged else "neither"
    note = "One line per trial, through its score and its settings. Click a line where it meets an axis for its runs."
    drawing = parallel(trials, scores, axes, title, better, base)
    yield _figure(search, f"parallel-{place}", f"Parallel coordinates: {name}", note, drawing, wide=True)
    note = "One panel per setting. Click a trial for its runs."
    drawing = slices(trials, scores, axes, title, search.best_numbers, base)
    yield _figure(search, f"slice-{place}", f"Slices: {name}", note, drawing, wide=True)


def _figure(search: SearchSummary, key: str, title: str, note: str, drawing: Drawing, wide: bool = False) -> Figure:
    rows = tuple((str(t.number), *(f"{v:.6g}" for v in t.values or () if v is not None)) for t in search.scored)
    return Figure(key, title, note, note, drawing, Table(("trial", *search.objectives), rows), wide=wide)


def _styled(drawing: go.Figure) -> Drawing:
    """A drawing with the page's fonts and background, and without a title, which the page has. Axis titles keep the
    last part of a path."""
    height = 480
    look = blank("", "", height)
    for each in (drawing.for_each_xaxis, drawing.for_each_yaxis):
        each(lambda axis: axis.title.update(text=setting_name(axis.title.text or "")))
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
    return Drawing.of(json.loads(drawing.to_json()))


LOGARITHMIC = 8
"""Ratio of the largest to the smallest value above which an axis is logarithmic."""
MOST_NAMED = 16
"""Most trials of the front with their numbers beside them; with more, numbers show only on hovering."""


def front_figure(search: SearchSummary) -> Figure:
    """The first objective upwards, the second across: for loss and cost, down and left is better."""
    names = list(search.objectives)
    up, across = names
    figure = blank(objective_title(across), objective_title(up), 460)
    others = [trial for trial in search.scored if trial.number not in search.best_numbers]
    front = sorted(search.best, key=lambda trial: trial.scores[1])
    # steps bound the reachable region: where less is better, a trial's loss is available at any greater cost
    shape = "hv" if search.objectives[across] == "minimize" else "vh"
    # half widths of the members with scores on fresh seeds
    spent = [search.standing(trial.number) for trial in front]
    halves = [(each.half_widths[up] if each else None) or 0.0 for each in spent]
    figure.add_scatter(**_points(search, others, "other trials"), mode="markers", marker={"color": "#888", "size": 7})
    figure.add_scatter(
        **_points(search, front, "front"),
        mode="lines+markers" + "+text" * (len(front) <= MOST_NAMED),
        line={"color": PALETTE[0], "width": 1.5, "dash": "dot", "shape": shape},
        marker={"color": PALETTE[0], "size": 11, "symbol": "diamond"},
        text=[str(trial.number) for trial in front],
        textposition="top right",
        error_y={"type": "data", "array": halves, "thickness": 1} if any(halves) else None,
    )
    if search.document.base.values and None not in search.document.base.values:
        y, x = search.document.base.values
        figure.add_scatter(x=[x], y=[y], mode="markers", name=BASE, marker=BASE_MARK)
    for axis, place in (("xaxis", 1), ("yaxis", 0)):
        values = [trial.scores[place] for trial in search.scored]
        spread = min(values) > 0 and max(values) / min(values) > LOGARITHMIC
        figure.update_layout({axis: {"type": "log" if spread else "linear"}})
    figure.update_layout(hoverlabel={"align": "left"}, hovermode="closest")
    note = "Diamonds: trials on the front, numbered as in the table. Click a trial for its runs."
    if search.standings:
        note += " Scores with bars (95 % intervals) are from fresh seeds; of the others, the best are optimistic"
        note += " (selection bias)."
    else:
        note += " Scores are from the search's own seeds: promote trials to confirm them."
    if not search.is_judged:
        note = "Every scored trial; this search names no best one. Click a trial for its runs."
    alt = "; ".join(f"trial {trial.number}: {_scores(search, trial)}" for trial in front)
    title = f"Front of {up} and {across}" if search.is_judged else f"{up} and {across} of every trial"
    return Figure("front", title, note, alt, figure, closing_table(search))


def _points(search: SearchSummary, trials: Sequence[TrialRecord], name: str) -> Attributes:
    return {
        "x": [trial.scores[1] for trial in trials],
        "y": [trial.scores[0] for trial in trials],
        "name": name,
        "hovertext": ["<br>".join(_hover(search, trial)) for trial in trials],
        "hoverinfo": "text",
        "customdata": [trial.number for trial in trials],
    }


def _hover(search: SearchSummary, trial: TrialRecord) -> Iterator[str]:
    yield f"<b>trial {trial.number}</b>"
    yield label(_scores(search, trial), 80)
    for path, value in trial.settings.items():
        yield label(f"{path} {value}", 60)


def _scores(search: SearchSummary, trial: TrialRecord) -> str:
    pairs = zip(search.objectives, trial.scores, strict=True)
    return ", ".join(f"{name} {value:.5g}" for name, value in pairs)
