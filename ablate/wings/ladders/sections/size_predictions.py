"""Does the small size predict the large one? The order of arms at each size of a ladder against the largest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from ablate.wings.ladders.order_accuracy import AccuracyFrom, SizeOrder, SizePredictions, predict
from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import Collected
from reports.judge.statistics.estimates import Interval
from reports.page.figures.base import NEUTRAL, Figure, short
from reports.page.figures.drawing import PALETTE, ArmStyle, blank
from reports.page.sections import Section
from reports.page.wording import words
from reports.page.wording.table import frame_table

CHANCE = 0.5
FEWEST_PAIRS = 4
"""Fewest pairs whose share is drawn."""


@dataclass(frozen=True)
class SizePredictionsSection(Section):
    """Predictions of a large size from smaller ones, for ladders with four arms or more. Uses the runs of section
    `ladder`."""

    place: ClassVar[int] = 17
    title: ClassVar[str] = "Does the small size predict the large one?"

    found: SizePredictions

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        found = predict(data.rungs)
        return cls(found) if found else None

    @property
    def is_the_question(self) -> bool:
        """True for a ladder of three sizes or more; a study of something else has one size beside its main one."""
        return len(self.found.sizes) > 2

    def answer(self, summary: StudySummary) -> str:
        """Accuracy of the second largest size, as a sentence."""
        size, last, found = self.found.sizes[-2], self.found.sizes[-1], self.found.predictions[-1]
        share, accuracy = _share(size, last), percent(found.accuracy)
        text = f"Size {size.size} ({share} of {last.size}'s compute) orders {accuracy} of pairs"
        return f"{text} as size {last.size}{_repeats(last)}."

    def introduction(self, summary: StudySummary) -> str:
        arms, last = len(self.found.arms), self.found.sizes[-1].size
        return (
            f"Of {arms * (arms - 1) // 2} pairs of {arms} arms, the share that a smaller size puts in the same order "
            f"as {last} (decision accuracy; 50 % is chance), and rank correlations. In brackets: 95 % intervals for "
            f"other arms of this kind, by bootstrap over arms and seeds{_repeats(self.found.sizes[-1])}."
        )

    def sentences(self, summary: StudySummary) -> Iterator[str]:
        yield from map(self._sentence, range(len(self.found.predictions)))
        if self.found.left_out:
            yield f"Left out, because not all their runs trained: {', '.join(self.found.left_out)}."

    def _sentence(self, place: int) -> str:
        size, last, found = self.found.sizes[place], self.found.sizes[-1], self.found.predictions[place]
        correlations = f"Kendall’s τ {_number(found.kendall)}, Spearman’s ρ {_number(found.spearman)}"
        # the half of the pairs that are furthest apart, unless these are too few
        halves = [step for step in _some(self.found.by_gap[place])[1:2] if step.pairs >= FEWEST_PAIRS]
        ceilings = [f"; ceiling from seed noise {100 * s.ceiling:.0f} %" for s in halves if s.ceiling]
        shares = [f" Of the {s.pairs} pairs furthest apart, {100 * s.accuracy:.0f} %" for s in halves]
        return (
            f"{size.size}, at {_share(size, last)} of the compute: {percent(found.accuracy)} of pairs; {correlations}."
            f"{''.join([*shares, *ceilings, '.' if shares else ''])}"
        )

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        yield self._accuracy()
        yield self._by_gap(summary)
        yield self._order(summary, style)

    def _accuracy(self) -> Figure:
        rows = list(zip(self.found.sizes, self.found.predictions, strict=False))
        figure = blank("size", "pairs in the same order (%)")
        shares = [found.accuracy for _, found in rows]
        above = [short(100 * (each.high - each.value)) for each in shares]
        below = [short(100 * (each.value - each.low)) for each in shares]
        figure.add_scatter(
            x=[size.size for size, _ in rows],
            y=[short(100 * each.value) for each in shares],
            error_y={"type": "data", "array": above, "arrayminus": below},
            mode="lines+markers",
            hovertemplate="%{x}: %{y:.3g} %<extra></extra>",
        )
        figure.add_hline(y=100 * CHANCE, line=NEUTRAL)
        figure.update_layout(showlegend=False)
        figure.update_xaxes(type="category")
        figure.update_yaxes(range=[0, 105])
        last = self.found.sizes[-1].size
        return Figure(
            key="size-predictions",
            title=f"How often a smaller size decides as {last} does",
            note="Bars are 95 % intervals for other arms of this kind. Dotted: chance.",
            alt="; ".join(map(self._sentence, range(len(rows)))),
            drawing=figure,
            table=frame_table(
                ("size", "FLOPs", "decision accuracy", "Kendall’s τ", "Spearman’s ρ"),
                [
                    (s.size, words.large(s.flops), percent(of.accuracy), _number(of.kendall), _number(of.spearman))
                    for s, of in rows
                ],
            ),
        )

    def _by_gap(self, summary: StudySummary) -> Figure:
        """Accuracy over the pairs at least a gap apart, with the ceiling that seed noise allows."""
        figure = blank(
            f"least difference at {self.found.sizes[-1].size} ({summary.unit})", "pairs in the same order (%)"
        )
        rows = []
        for size, steps, look in zip(self.found.sizes, self.found.by_gap, PALETTE, strict=False):
            shown = [step for step in steps if step.pairs >= FEWEST_PAIRS]
            x = [short(step.gap) for step in shown]
            figure.add_scatter(
                x=x,
                y=[short(100 * step.accuracy) for step in shown],
                customdata=[step.pairs for step in shown],
                name=size.size,
                legendgroup=size.size,
                line={"color": look, "shape": "vh"},
                mode="lines",
                hovertemplate="%{y:.3g} % of %{customdata} pairs at least %{x} apart",
            )
            ceilings = [short(100 * step.ceiling) for step in shown if step.ceiling is not None]
            if ceilings:
                figure.add_scatter(
                    x=x,
                    y=ceilings,
                    name=f"{size.size}, ceiling from seed noise",
                    legendgroup=size.size,
                    line={"color": look, "dash": "dot", "width": 1.5},
                    mode="lines",
                    hovertemplate="at most %{y:.3g} %",
                )
            for step in _some(shown):
                ceiling = "–" if step.ceiling is None else f"{100 * step.ceiling:.0f} %"
                rows.append((size.size, f"{step.gap:.4f}", str(step.pairs), f"{100 * step.accuracy:.0f} %", ceiling))
        figure.add_hline(y=100 * CHANCE, line=NEUTRAL)
        figure.update_yaxes(range=[0, 105])
        return Figure(
            key="size-predictions-by-gap",
            title="How often a smaller size decides correctly, by size of the difference",
            note=(
                f"Over the pairs that differ by at least this much at {self.found.sizes[-1].size}, while there are "
                f"{FEWEST_PAIRS}. Dotted: ceiling from seed noise, if the smaller size had the same differences; "
                "dotted and level: chance."
            ),
            alt="; ".join(
                f"{size}: {share} of {pairs} pairs at least {gap} apart" for size, gap, pairs, share, _ in rows
            ),
            drawing=figure,
            table=frame_table(
                ("size", "least difference", "pairs", "in the same order", "ceiling from seed noise"), rows
            ),
        )

    def _order(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Figure:
        """The loss of each arm relative to the mean of all arms, at each size."""
        sizes = self.found.sizes
        centres = [sum(size.losses) / len(size.losses) for size in sizes]
        gaps = {
            arm: [size.losses[place] - centre for size, centre in zip(sizes, centres, strict=True)]
            for place, arm in enumerate(self.found.arms)
        }
        figure = blank("size", f"loss minus the mean of all arms ({summary.unit})")
        for arm, values in gaps.items():
            look = style[arm]
            figure.add_scatter(
                x=[size.size for size in sizes],
                y=list(map(short, values)),
                name=look.label,
                legendgroup=look.label,
                mode="lines+markers",
                marker={"symbol": look.symbol, "size": 8},
                line={"color": look.colour, "dash": look.dash},
                hovertemplate="%{y:+.4f} at %{x}",
            )
        figure.update_xaxes(type="category")
        rows = [(arm, *(words.signed(value, 4) for value in values)) for arm, values in gaps.items()]
        return Figure(
            key="size-order",
            title="The order of the arms at each size",
            note="Means over seeds. Lines that cross are pairs that the sizes order differently.",
            alt="; ".join(f"{arm} {values[0]:+.4f} to {values[-1]:+.4f}" for arm, values in gaps.items()),
            drawing=figure,
            table=frame_table(("arm", *(size.size for size in sizes)), rows),
        )


def _some(steps: Sequence[AccuracyFrom]) -> list[AccuracyFrom]:
    """Steps over all pairs, over half and over a quarter of them, as far as they exist."""
    few = ([step for step in steps if step.pairs <= most * steps[0].pairs][:1] for most in (1.0, 0.5, 0.25))
    return [step for found in few for step in found]


def _share(size: SizeOrder, last: SizeOrder) -> str:
    return f"{100 * size.flops / last.flops:.3g} %"


def _repeats(last: SizeOrder) -> str:
    """Agreement of single seeds at the last size, in words: their noise limits every prediction."""
    if last.repeatability is None:
        return ""
    return f"; seeds agree on {100 * last.repeatability:.0f} %"


def percent(found: Interval) -> str:
    """`84 % (70 to 96 %)`."""
    return f"{100 * found.value:.0f} % ({100 * found.low:.0f} to {100 * found.high:.0f} %)"


def _number(found: Interval) -> str:
    value, low, high = (words.signed(each, 2).removeprefix("+") for each in (found.value, found.low, found.high))
    return f"{value} ({low} to {high})"
