"""Does the small size predict the large one? The order of many arms at each size of a ladder against the largest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from reports.figures.base import NEUTRAL, Figure, short
from reports.figures.style import ArmStyle, blank
from reports.findings.predictions import SizeOrder, SizePredictions, predict
from reports.findings.shapes import StudySummary
from reports.reading.collected import Collected
from reports.sections import Section
from reports.sections.ladder import Ladder
from reports.statistics.interval import Interval
from reports.statistics.prediction import Prediction
from reports.wording import words
from reports.wording.table import frame_table

CHANCE = 0.5


@dataclass(frozen=True)
class SizePredictionsSection(Section):
    """Predictions of a large size from smaller ones, for ladders of four arms or more; runs as in section `ladder`."""

    place: ClassVar[int] = 17
    title: ClassVar[str] = "Does the small size predict the large one?"

    found: SizePredictions

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        found = predict(data.frames[Ladder.name()])
        return cls(found) if found else None

    @property
    def is_the_question(self) -> bool:
        """True for a ladder of many sizes; a study of something else has one size beside its main one."""
        return len(self.found.sizes) > 2

    def answer(self, summary: StudySummary) -> str:
        """Accuracy of the size next to the last, as a sentence."""
        size, last, found = self.found.sizes[-2], self.found.sizes[-1], self.found.predictions[-1]
        share, accuracy = _share(size, last), percent(found.accuracy)
        text = f"Size {size.size}, at {share} of the compute, orders {accuracy} of pairs of arms"
        return f"{text} as {last.size} does{_repeats(last)}."

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
        return (
            f"{size.size}, at {_share(size, last)} of the compute: {percent(found.accuracy)} of pairs; {correlations}."
        )

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        yield self._accuracy()
        yield self._order(summary, style)

    def _accuracy(self) -> Figure:
        rows = list(zip(self.found.sizes, self.found.predictions, strict=False))
        figure = blank("size", "pairs in the same order (%)")
        figure.add_scatter(
            x=[size.size for size, _ in rows],
            y=[short(100 * found.accuracy.value) for _, found in rows],
            error_y=_bars([found.accuracy for _, found in rows]),
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
                [(size.size, words.large(size.flops), *_row(found)) for size, found in rows],
            ),
        )

    def _order(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Figure:
        """The loss of each arm against the mean of all, at each size."""
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


def _share(size: SizeOrder, last: SizeOrder) -> str:
    return f"{100 * size.flops / last.flops:.3g} %"


def _repeats(last: SizeOrder) -> str:
    """Agreement of single seeds at the last size, in words: its noise limits every prediction."""
    if last.repeatability is None:
        return ""
    return f"; two single seeds of {last.size} agree on {100 * last.repeatability:.0f} %"


def _bars(found: list[Interval]) -> dict[str, object]:
    return {
        "type": "data",
        "array": [short(100 * (each.high - each.value)) for each in found],
        "arrayminus": [short(100 * (each.value - each.low)) for each in found],
    }


def percent(found: Interval) -> str:
    """`84 % (70 to 96 %)`."""
    return f"{100 * found.value:.0f} % ({100 * found.low:.0f} to {100 * found.high:.0f} %)"


def _number(found: Interval) -> str:
    value, low, high = (words.signed(each, 2).removeprefix("+") for each in (found.value, found.low, found.high))
    return f"{value} ({low} to {high})"


def _row(found: Prediction) -> tuple[str, str, str]:
    return percent(found.accuracy), _number(found.kendall), _number(found.spearman)
