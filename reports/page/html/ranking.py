"""Rows of the result figure from a summary: each arm's result, notes and costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from markupsafe import Markup

from reports.judge.findings.comparison import Comparison
from reports.judge.findings.study_summary import ArmSummary, StudySummary
from reports.judge.reading.outcomes import FAILED
from reports.judge.sentences import listed
from reports.judge.statistics.estimates import NO_DIFFERENCE, SAME_RATIO, exact, surely_dominated
from reports.judge.verdicts import Verdict
from reports.page.html.ranked import SCREEN, Ranked, RankedRow
from reports.page.html.templating import environment, source
from reports.page.sections._against import VISIBLE, Cost, measured_costs
from reports.page.sections.failures import Failures
from reports.page.sections.trade_off import TradeOff
from reports.page.wording import arm_words, cost_words, words
from reports.page.wording.answers import beside, headline
from reports.page.wording.arm_words import baseline_line, brief, spelled
from reports.page.wording.finding_words import small_print
from store.extensions import modules_of

MOST_COLUMNS = 5
"""Most costs with a column."""


def ranked(summary: StudySummary) -> Ranked:
    """The result figure of a study, with one row per arm, or per effect of a design."""
    section = summary.section(TradeOff)
    costs = section.distinct if section else ()
    if summary.effects:
        # costs of factors: times, memory and the bytes of the cache
        found = {each.effect.name: each.comparison.costs for each in summary.effects}
        caches = {name: exact(each.kv_ratio) for name, each in found.items() if each.kv_ratio is not None}
        every = (*measured_costs(found), Cost("kv", "KV cache at the training context", caches, declared=True))
        costs = tuple(cost for cost in every if cost.ratios)
        rows = [
            RankedRow(
                name=each.effect.name,
                label=spelled(each.effect.name),
                gloss=arm_words.of_effect(summary, each.effect),
                verdict=each.verdict,
                difference=each.comparison.difference,
                said=_said(each.comparison, each.verdict),
                note="",
                costs={cost.key: cost.ratios[each.effect.name] for cost in costs if each.effect.name in cost.ratios},
            )
            for each in summary.effects
        ]
    else:
        names = brief([arm.name for arm in summary.arms])
        rows = [_arm(summary, arm, names[arm.name], costs) for arm in summary.arms]
    columns = [cost for cost in costs if cost.differs][:MOST_COLUMNS]
    rows.sort(key=lambda row: (row.difference is None, row.difference.mean if row.difference else 0.0))
    if len(rows) > SCREEN and columns:
        beaten = surely_dominated([_point(row, columns[0]) for row in rows])
        rows = [replace(row, beaten=lost) for lost, row in zip(beaten, rows, strict=True)]
        rows.sort(key=lambda row: bool(row.beaten))
    others = said_alike([cost for cost in costs if cost not in columns])
    alike = " ".join(filter(None, (others, cost_words.unmeasured(summary))))
    base, unit, margin = summary.baseline, summary.unit, summary.study.margin
    figure = Ranked(tuple(rows), tuple(columns), alike, base, unit, bool(summary.effects), margin)
    for wing in modules_of(__name__):
        figure = wing.ranked(summary, figure)
    return figure


def _point(row: RankedRow, cost: Cost) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Intervals of the difference and of a cost; None if either is unknown."""
    loss, ratio = row.difference, row.costs.get(cost.key)
    if loss is None or ratio is None:
        return None
    (a, b), (c, d) = ((v.mean if v.low is None else v.low, v.mean if v.high is None else v.high) for v in (loss, ratio))
    return (a, b), (c, d)


def _arm(summary: StudySummary, arm: ArmSummary, label: str, costs: Iterable[Cost]) -> RankedRow:
    # failed or missing seeds, or a seed far from the others
    notes = [arm_words.failed(arm)]
    if arm.missing:
        section, total = summary.section(Failures), len(arm.seeds) + arm.failed + len(arm.missing)
        failure = section.of(arm.name) if section else None
        why = f": {arm_words.short(failure.error)}" if failure else ""  # `: CheckpointError: …`
        notes.append(f"no result for {len(arm.missing)} of {total} runs{why}")
    if run := arm.outlier:
        notes.append(f"the loss of seed {run.seed} is {abs(run.above):.2g} nats {run.side} the others")
    is_base = arm.name == summary.baseline
    found = arm.comparison.difference if arm.comparison else None
    worth = summary.effective_compute.get(arm.name) if arm.verdict not in FAILED else None
    ratios = {
        cost.key: SAME_RATIO if is_base else cost.ratios[arm.name]
        for cost in costs
        if is_base or arm.name in cost.ratios
    }
    return RankedRow(
        name=arm.name,
        label=label,
        gloss=arm_words.of_arm(summary, arm),
        verdict=arm.verdict,
        difference=NO_DIFFERENCE if is_base and arm.seeds else None if arm.verdict in FAILED else found,
        said=f"loss {words.plus_minus(arm.loss)}" if is_base else _said(arm.comparison, arm.verdict),
        note=", ".join(filter(None, notes)),
        costs=ratios,
        aside=f"{words.times(worth)} compute" if worth else "",
    )


def _said(comparison: Comparison | None, verdict: Verdict) -> str:
    if comparison is None or comparison.difference is None or verdict in FAILED:
        return ""
    return words.interval(comparison.difference).removesuffix(" nats")


def said_alike(others: Sequence[Cost]) -> str:
    """`The same KV cache and parameters to within 2 %. No measurable difference in peak memory.`"""
    same = list(dict.fromkeys(cost.name for cost in others if _is_same(cost)))
    unsure = list(dict.fromkeys(cost.name for cost in others if not _is_same(cost)))
    said = (
        f"The same {listed(same)} to within {100 * VISIBLE:.0f} %." if same else "",
        f"No measurable difference in {listed(unsure)}." if unsure else "",
    )
    return " ".join(filter(None, said))


def _is_same(cost: Cost) -> bool:
    """Whether no arm's cost differs visibly, even at the ends of its interval."""
    ends = [end for each in cost.ratios.values() for end in (each.low, each.high) if end is not None]
    return cost.declared or (bool(ends) and max(abs(end - 1) for end in ends) <= VISIBLE)


# Notebook view of a study: the answer, and one row per arm. No script and no Plotly, so that it displays anywhere.

SCOPE = ".ablate-result"
"""CSS selector that restricts the page's colours to the cell."""


def render_cell(summary: StudySummary) -> str:
    """An HTML fragment of a few kilobytes per arm."""
    style = source("palette.css").replace(":root", SCOPE) + source("ranked.css")
    return (
        environment()
        .get_template("cell.html.j2")
        .render(
            style=Markup(style),
            answer=headline(summary),
            small_print=small_print(summary),
            standing=baseline_line(summary),
            ranked=ranked(summary),
            beside=list(beside(summary)),
        )
    )
