"""Figure of associative recall: loss by the distance to a bigram's last occurrence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import CurvePoint
from reports.judge.statistics.estimates import Estimate
from reports.page.figures.base import (
    Figure,
    Switch,
    SwitchOption,
    bucket_name,
    bucket_ticks,
    mean_and_range,
    no_windows,
    optional,
    short,
)
from reports.page.figures.drawing import ArmStyle, Attributes, Drawing, blank
from reports.page.wording import words
from reports.page.wording.table import frame_table

NAMES = {"ar_hits": "all recall hits", "frequent": "seen, frequent in training", "unseen": "not seen before"}
UNSEEN = "new"
TICKS = 5
"""Most ticks that fit on a phone."""


@dataclass(frozen=True)
class Targets:
    """A subset of the targets: a `part` of all, or the hits at distances from `first` to `last`.

    `loss` is over seeds, in nats per token, at x = `last`. `difference` from the baseline is paired by seed, over the
    same targets; None for the baseline itself. `half_width` is that of the loss's 95 % interval over stretches of text
    and seeds.
    """

    part: str
    first: int | None
    last: int | None
    tokens: int
    loss: CurvePoint
    difference: Estimate | None
    half_width: float | None
    bits_per_byte: float | None


@dataclass(frozen=True)
class RecallCurve:
    """One arm in the longest windows that all arms could read. `frequent`: bigrams that occur more often than this in
    the training text are no hits; None if all are hits. `reasons` say why an arm read no longer windows."""

    arm: str
    context: int
    length: int
    frequent: int | None
    hits: tuple[Targets, ...]
    parts: tuple[Targets, ...]
    reasons: tuple[tuple[int, str], ...]

    @property
    def tokens(self) -> int:
        return sum(part.tokens for part in self.parts)


def figure_of(
    found: list[RecallCurve], curves: tuple[RecallCurve, ...], summary: StudySummary, style: Mapping[str, ArmStyle]
) -> Figure:
    figure = blank("tokens since the bigram was last seen", f"loss ({summary.unit})")
    far = 8 * max(hits.last or 1 for curve in found for hits in curve.hits)
    for curve in found:
        _line(figure, style[curve.arm], curve, far, summary.baseline)
    ends = bucket_ticks((hits.last for curve in found for hits in curve.hits if hits.last), TICKS)
    ticks: Attributes = {"tickvals": [*ends, far], "ticktext": [*map(words.whole, ends), UNSEEN]}
    figure.update_xaxes(type="log", tickmode="array", tickangle=0, **ticks)
    refused = "".join(text for curve in curves for text in no_windows(curve.arm, curve.reasons))
    return Figure(
        key="recall",
        title="Associative recall by distance",
        note=(
            "Held-out tokens that complete a bigram already in the window, by the distance to its last occurrence:"
            f" a model that looks back knows what followed. Windows of {found[0].length:,} tokens, the same for all"
            f" arms.{_frequent(found[0])} Rightmost: tokens whose bigram is new to the window. Bars: 95 % intervals"
            " over stretches of text and seeds. Arms read the same text, so differences between them are more certain"
            f" than the bars suggest: the table has them paired by seed.{refused}"
        ),
        alt="; ".join(f"{c.arm} {NAMES[p.part]}: {p.loss.mean:.4f}" for c in found for p in c.parts),
        drawing=figure,
        table=frame_table(
            (
                "arm",
                "tokens since last seen",
                "share of tokens",
                f"loss ({summary.unit})",
                "lowest seed",
                "highest seed",
                "±",
                "bits per byte",
                f"less {summary.baseline}",
                "95 % interval over seeds",
            ),
            [_row(c, targets) for c in found for targets in (*c.hits, *c.parts)],
            2,
        ),
        switches=_switches(found, summary, far),
    )


def _line(figure: Drawing, look: ArmStyle, curve: RecallCurve, far: int, baseline: str) -> None:
    for place, targets in enumerate(_traces(curve)):
        halves = [each.half_width or 0 for each in targets]
        bars = {"array": halves, "arrayminus": halves, "thickness": 1.2, "width": 3}
        figure.add_scatter(
            x=[each.last or far for each in targets],
            y=[short(each.loss.mean) for each in targets],
            error_y={"type": "data", "symmetric": False, **bars},
            name=look.label,
            legendgroup=look.label,
            showlegend=place == 0,
            mode="lines+markers" if place == 0 else "markers",
            marker={"color": look.colour, "symbol": look.symbol, "size": 7 if place == 0 else 10},
            line={"color": look.colour, "dash": look.dash, "width": 2.2},
            text=_hover(targets, baseline),
            hovertemplate="%{y:.4f} at %{x}%{text}" if place == 0 else f"%{{y:.4f}}, {UNSEEN}%{{text}}",
        )


def _hover(targets: Sequence[Targets], baseline: str) -> list[str]:
    """`; less attention: +0.1230 (+0.1010 to +0.1450)` for each point; empty for the baseline's points."""
    found = []
    for each in targets:
        mean, interval = _difference(each.difference)
        apart = mean if interval == words.NONE else f"{mean} ({interval})"
        found.append("" if each.difference is None else f"; less {baseline}: {apart}")
    return found


def _difference(difference: Estimate | None) -> tuple[str, str]:
    """The mean over pairs of seeds, and its interval, which a single pair lacks."""
    if difference is None:
        return words.NONE, words.NONE
    mean = words.signed(difference.mean, 4)
    if difference.low is None or difference.high is None:
        return mean, words.NONE
    return mean, f"{words.signed(difference.low, 4)} to {words.signed(difference.high, 4)}"


def _traces(curve: RecallCurve) -> tuple[tuple[Targets, ...], tuple[Targets, ...]]:
    """The targets of an arm's line, and those of its single point (unseen bigrams)."""
    return curve.hits, tuple(part for part in curve.parts if part.part == "unseen")


def _switches(found: list[RecallCurve], summary: StudySummary, far: int) -> tuple[Switch, ...]:
    """Switch between the loss and its difference from the baseline's with the same seeds."""
    traces = [targets for curve in found for targets in _traces(curve)]
    if not any(each.difference for targets in traces for each in targets):
        return ()
    losses = SwitchOption(
        "loss",
        {
            "x": [[each.last or far for each in targets] for targets in traces],
            "y": [[short(each.loss.mean) for each in targets] for targets in traces],
            "error_y.array": [[short(each.half_width or 0) for each in targets] for targets in traces],
            "error_y.arrayminus": [[short(each.half_width or 0) for each in targets] for targets in traces],
            "text": [_hover(targets, summary.baseline) for targets in traces],
        },
        {"yaxis.title.text": f"loss ({summary.unit})", "yaxis.autorange": True},
    )
    apart = [[(each, each.difference) for each in targets if each.difference] for targets in traces]
    differences = SwitchOption(
        f"difference from {summary.baseline}, with the range over seeds",
        {
            "x": [[each.last or far for each, _ in pairs] for pairs in apart],
            "y": [[short(point.mean) for _, point in pairs] for pairs in apart],
            "error_y.array": [[short(max(point.values) - point.mean) for _, point in pairs] for pairs in apart],
            "error_y.arrayminus": [[short(point.mean - min(point.values)) for _, point in pairs] for pairs in apart],
            "text": [_hover([each for each, _ in pairs], summary.baseline) for pairs in apart],
        },
        {"yaxis.title.text": f"difference in loss ({summary.unit})", "yaxis.autorange": True},
    )
    return (Switch("shown", "show", (losses, differences)),)


def _row(curve: RecallCurve, targets: Targets) -> tuple[str, ...]:
    share = f"{100 * targets.tokens / curve.tokens:.1f} %"
    first, last = targets.first, targets.last
    return (
        curve.arm,
        NAMES[targets.part] if first is None or last is None else bucket_name(first, last),
        share,
        *mean_and_range(targets.loss),
        optional(targets.half_width),
        optional(targets.bits_per_byte),
        *_difference(targets.difference),
    )


def _frequent(curve: RecallCurve) -> str:
    if curve.frequent is None:
        return ""
    return (
        f" Bigrams that occur more than {curve.frequent:,} times in the training text are left out, since a"
        " model may have memorised them."
    )
