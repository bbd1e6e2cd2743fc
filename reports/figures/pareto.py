"""The front of a search for two objectives: what every trial reached, and which of them no other beats in both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ablate.store.documents import TrialRecord
from reports.figures.base import Figure
from reports.figures.drawing import Attributes
from reports.figures.style import PALETTE, blank, label
from reports.searches.search import SearchSummary
from reports.searches.search_tables import closing_table, objective_title

LOGARITHMIC = 8
"""An axis whose largest value is so many times its smallest one has a logarithmic scale."""
MOST_NAMED = 16
"""Trials of the front that have their numbers beside them; of more, the page shows those on hovering alone."""


def front_figure(search: SearchSummary) -> Figure:
    """The first objective upwards, the second across: of a front in loss and cost, down and left is better."""
    names = list(search.objectives)
    up, across = names
    figure = blank(objective_title(across), objective_title(up), 460)
    others = [trial for trial in search.scored if trial.number not in search.best_numbers]
    front = sorted(search.best, key=lambda trial: trial.scores[1])
    # steps through what is reached: where less is better, a trial's loss can be had at any greater cost
    shape = "hv" if search.objectives[across] == "minimize" else "vh"
    # of the members that fresh seeds were spent on
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
        marker = {"color": "#444", "size": 11, "symbol": "x"}
        figure.add_scatter(x=[x], y=[y], mode="markers", name=search.document.base.name, marker=marker)
    for axis, place in (("xaxis", 1), ("yaxis", 0)):
        values = [trial.scores[place] for trial in search.scored]
        spread = min(values) > 0 and max(values) / min(values) > LOGARITHMIC
        figure.update_layout({axis: {"type": "log" if spread else "linear"}})
    figure.update_layout(hoverlabel={"align": "left"}, hovermode="closest")
    note = "Diamonds are on the front. Their numbers are those of the table; click a trial for its runs."
    if search.standings:
        note += " Those with bars, 95 % intervals, have scores of fresh seeds; all other scores flatter."
    else:
        note += " Scores are from the search's own seeds: promote trials to confirm them."
    if not search.is_judged:
        note = "Every scored trial; none is called the best. Click a trial for its runs."
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
