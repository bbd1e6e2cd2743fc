"""Findings of a ladder, in words."""

from __future__ import annotations

from collections.abc import Iterator

from ablate.wings.ladders.laws import LadderArm, SpeedUp
from ablate.wings.ladders.worth import NATS, Worth
from reports.judge.statistics.interval import Interval
from reports.judge.verdicts import ALPHA
from reports.page.wording import words


def sentence(arm: LadderArm) -> str:
    """`post: loss falls towards 1.71 (1.52 to 1.80) as compute to the power −0.31 (−0.4 to −0.2); the difference …`"""
    said = [arm.undetermined] if arm.undetermined else []
    if arm.law is not None:
        floor, b = words.ends(arm.law.irreducible), arm.law.exponent
        power = words.ends(Interval(-b.value, -b.high, -b.low))
        said = [f"loss falls towards {floor} as compute to the power {power}"]
    if arm.trend is not None:
        by = f"{words.ends(arm.trend.slope, sign=True)} nats per tenfold compute, {words.p_value(arm.trend.p)}"
        unsure = "" if arm.trend.p < ALPHA else "cannot tell whether "
        said.append(f"{unsure}its difference from the baseline has a trend over sizes ({by})")
    if arm.speed_up is not None:
        said.append(_worth(arm.speed_up))
    return f"{arm.arm}: {'; '.join(said) or 'too few finished runs'}."


def _worth(worth: SpeedUp) -> str:
    text = f"over {worth.compute.budgets} sizes its effective compute is {words.times(worth.compute_factor)}"
    if worth.compute.trend and worth.compute.changes:
        text += f", which {worth.compute.changes} with size ({words.p_value(worth.compute.trend[1])})"
    if worth.effective is None or worth.throughput_ratio is None:
        return text
    speed = f"and it runs at {worth.throughput_ratio:.2f}× the FLOP/s"
    return f"{text}, {speed}: an effective speed-up of {words.times(worth.effective)}"


def conversion(worth: Worth | None) -> Iterator[str]:
    """`At a loss of 3.30, 0.01 nats are worth 6.9 % of compute (6.4 to 7.4 %), by pre's own curve over sizes.`"""
    if worth is not None:
        share, low, high = (100 * (each - 1) for each in (worth.nats.value, worth.nats.low, worth.nats.high))
        yield (
            f"Effective compute (×) is each difference read off the baseline's own curve over {worth.axis}s: at its "
            f"loss of {worth.loss:.2f}, {NATS} nats are worth {share:.2g} % of compute ({low:.2g} to "
            f"{high:.2g} %)."
        )
