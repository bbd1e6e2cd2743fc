"""The page of `ablate compare --out`: one HTML file with the verdicts, figures, and what was read and left out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from ablate.wings.compare import compute_words
from ablate.wings.compare.comparing import LossComparison
from ablate.wings.compare.compute_words import Row
from reports.judge.sentences import listed
from reports.judge.statistics.estimates import NO_DIFFERENCE, SAME_RATIO, Estimate, Interval, exact, single
from reports.page.figures.base import NEUTRAL, Figure, mean_point, short
from reports.page.figures.drawing import CONFIG, ArmStyle, blank, looks
from reports.page.html.page import drawn
from reports.page.html.ranked import Ranked, RankedRow
from reports.page.html.templating import FIGURES, render
from reports.page.sections._against import Cost, LossDifferences, Ratios
from reports.page.sections._plane import Plane
from reports.page.wording import words
from reports.page.wording.table import Table, frame_table
from store.files import write_text

LEFT_OUT = ("is left out", "counted as failed", "different steps", "without a step", "has no {seed}", "several rows")
"""Pieces of the notes on what was read, which stand beside the answer."""
COST = {"cost": "cost", "time": "time at equal FLOPs"}


def write_comparison(found: LossComparison, path: Path | str) -> Path:
    """Write a comparison as one HTML file that works offline, and return its path.

    Args:
        found: what `ablate.compare` returned.
        path: the file.

    Returns:
        The file.

    Raises:
        OSError: the file cannot be written.

    Example:
        >>> ablate.write_comparison(ablate.compare("losses.csv"), "report.html")
    """
    return write_text(Path(path), comparison_page(found))


def comparison_page(found: LossComparison) -> str:
    """The page as HTML text."""
    style, figures = looks(found.arms["arm"].to_list()), list(_figures(found))
    others, better = _others(found), "higher" if found.higher_is_better else "lower"
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    title = f"{listed(others[:3])}{more} against {found.baseline}"
    name = Path(found.source).stem or "compare"
    seeds = found.runs["seed"].len()
    notes = [f"{note[0].upper()}{note[1:]}." for note in filter(None, found.notes)]
    return render(
        "comparison.html.j2",
        FIGURES,
        {"config": CONFIG, "figures": {figure.key: drawn(figure, found.source, name) for figure in figures}},
        own=Path(__file__).parent,
        title=title,
        source=Path(found.source).name if found.source else "",
        answer=answer(found),
        small_print=f"{seeds} runs of {found.arms.height} arms; {found.metric}, {better} is better; 95 % intervals, "
        f"corrected for {found.contrasts.height} comparison{'s' * (found.contrasts.height > 1)}",
        ranked=_ranked(found, style),
        qualifiers=[note for note in notes if any(piece in note for piece in LEFT_OUT)],
        figures=figures,
        sentences=list(sentences(found)),
        tables=list(_tables(found)),
        read_said="Every run that counts, with its last value, as it was found.",
        read=_read(found.runs),
        notes=notes,
    )


def _others(found: LossComparison) -> list[str]:
    return [name for name in found.arms["arm"].to_list() if name != found.baseline]


def answer(found: LossComparison) -> str:
    """`wide is better than base: effective compute ×1.11 (1.07 to 1.17); same is undecided.`"""
    rows = list((found.compute if found.compute.height else found.contrasts).iter_rows(named=True))
    said: list[str] = []
    for verdict in ("better", "worse"):
        for row in (row for row in rows if row["verdict"] == verdict):
            than = f" than {found.baseline}" if not said else ""
            said.append(f"{row['arm']} is {verdict}{than}{_by(row)}")
    others = {
        "no difference": "makes no difference",
        "diverged": "diverged",
        "inconclusive": "is undecided",
        "cannot tell": "cannot be judged",
        "no verdict": "is not judged yet",
    }
    for verdict, words_of in others.items():
        names = [row["arm"] for row in rows if row["verdict"] == verdict]
        if names:
            plural = words_of.replace("is ", "are ").replace("makes", "make") if len(names) > 1 else words_of
            said.append(f"{listed(names) if len(names) < 4 else f'{len(names)} arms'} {plural}")
    return "; ".join(said) + "."


def _by(row: Row) -> str:
    if "factor" in row:
        factor = compute_words.interval(row, "factor", "low", "high")
        last = f", which {row['changes']} to ×{row['largest']:.2f} at the largest budget" if row["changes"] else ""
        return f": effective compute {words.times(factor)}{last}" if factor else ""
    if row["difference"] is None:
        return ""
    value = _estimate(row)
    return f" by {_said(value.negative() if value.mean < 0 else value).replace('+', '')}"


def _estimate(row: Row, values: tuple[float, ...] = ()) -> Estimate:
    return Estimate(row["difference"], row["low"], row["high"], None, values)


def _said(value: Estimate) -> str:
    return words.interval(value).removesuffix(" nats")


def sentences(found: LossComparison) -> Iterator[str]:
    """All findings in words."""
    yield from map(compute_words.sentence, found.compute.iter_rows(named=True))
    for row in found.contrasts.iter_rows(named=True):
        if row["p"] is not None or not found.compute.height:
            yield f"{row['arm']}: {row['verdict']}; {row['reason']}."
    if found.detectable is not None:
        yield f"These seeds detect a difference of {found.detectable:.2g} with 80 % power, if rates were chosen well."


def _ranked(found: LossComparison, style: Mapping[str, ArmStyle]) -> Ranked:
    """The result figure: compute that the baseline's loss takes in each arm, or differences in the metric."""
    costs = _costs(found)
    by_compute = {row["arm"]: row for row in found.compute.iter_rows(named=True)}
    rows = [_baseline_row(found, costs)]
    for row in found.contrasts.iter_rows(named=True):
        compute = by_compute.get(row["arm"])
        value, said, note, aside = _plain(found, row) if compute is None else _by_compute(compute, row)
        mine = {cost.key: cost.ratios[row["arm"]] for cost in costs if row["arm"] in cost.ratios}
        verdict = row["verdict"] if compute is None else compute["verdict"]
        rows.append(RankedRow(row["arm"], row["arm"], "", verdict, value, said, note, mine, aside=aside))
    order = -1 if found.higher_is_better and not by_compute else 1
    rows.sort(key=lambda row: (row.difference is None, order * row.difference.mean if row.difference else 0.0))
    if by_compute:
        sides, of, unit, plotted = ("% less", "% more"), "compute", "effective compute", "compute for the same loss (%)"
    else:
        sides, of, unit = ("lower", "higher"), found.metric, found.metric
        plotted = f"difference in {found.metric} from {found.baseline}"
    sides = (f"{sides[0]} {of}", f"{sides[1]} {of}")
    return Ranked(
        tuple(rows), costs, "", found.baseline, unit, False, sides=sides, plotted=plotted, skewed=bool(by_compute)
    )


def _baseline_row(found: LossComparison, costs: Sequence[Cost]) -> RankedRow:
    loss = found.arms.filter(arm=found.baseline)["loss"].item()
    said = words.NONE if loss is None else f"{found.metric} {loss:.4f}"
    name = found.baseline
    return RankedRow(name, name, "", "baseline", NO_DIFFERENCE, said, "", {cost.key: SAME_RATIO for cost in costs})


def _plain(found: LossComparison, row: Row) -> tuple[Estimate | None, str, str, str]:
    """The value to draw, in words, a note and an aside."""
    failed = found.arms.filter(arm=row["arm"])["failed"].item()
    note = f"{failed} run{'s' * (failed > 1)} failed" if failed else ""
    if row["difference"] is None:
        return None, words.NONE, note or row["reason"], ""
    value = _estimate(row, _by_seed(found, row["arm"]))
    return value, _said(value), note, ""


def _by_seed(found: LossComparison, arm: str) -> tuple[float, ...]:
    """Differences of the seeds that finished in both arms."""
    done = found.runs.filter(pl.col("loss").is_finite())
    done = done.filter(split="judging") if "split" in done.columns else done
    own, base = (done.filter(arm=name).select("seed", "loss") for name in (arm, found.baseline))
    pairs = own.join(base, on="seed", suffix="_base").sort("seed")
    return tuple((pairs["loss"] - pairs["loss_base"]).to_list())


def _by_compute(compute: Row, row: Row) -> tuple[Estimate | None, str, str, str]:
    """The compute that the baseline's loss takes, less the baseline's, in per cent."""
    factor = compute_words.interval(compute, "factor", "low", "high")
    if factor is None:
        return None, words.NONE, compute["reason"], ""
    low, high = (math.inf if end == 0 else 100 * (1 / end - 1) for end in (factor.high, factor.low))
    aside = "" if row["difference"] is None else f"{_said(_estimate(row))} in loss at the largest"
    value = Estimate(100 * (1 / factor.value - 1), low, high, None, ())
    changes = f"{compute['changes']} with compute" if compute["changes"] else compute["reason"]
    return value, words.times(factor), changes, aside


def _costs(found: LossComparison) -> tuple[Cost, ...]:
    """Costs relative to the baseline, if given: the column `cost`, and the time that equal FLOPs take."""
    cost = dict(found.arms.drop_nulls("cost").select("arm", "cost").iter_rows())
    base = cost.get(found.baseline)
    ratios = {"cost": {name: exact(of / base) for name, of in cost.items()} if base else {}}
    if found.compute.height:
        speeds = found.compute.drop_nulls("speed").select("arm", "speed").iter_rows()
        ratios["time"] = {name: exact(1 / speed) for name, speed in speeds}
    return tuple(Cost(key, COST[key], of, declared=True) for key, of in ratios.items() if of)


def _figures(found: LossComparison) -> Iterator[Figure]:
    style = looks(found.arms["arm"].to_list())
    if found.by_budget.height:
        yield _curves(found, style)
        yield _at_each_budget(found, style)
    costs = _costs(found)
    if costs and not found.higher_is_better and len(_others(found)) > 1:
        yield from _trade_off(found, style, costs[0])


def _curves(found: LossComparison, style: Mapping[str, ArmStyle]) -> Figure:
    figure = blank("training FLOPs", found.metric)
    for (arm,), rows in found.by_budget.group_by("arm", maintain_order=True):
        look = style[str(arm)]
        figure.add_scatter(
            x=[short(flops) for flops in rows["flops"]],
            y=[short(loss) for loss in rows["loss"]],
            mode="lines+markers",
            name=look.label,
            legendgroup=look.label,
            line={"color": look.colour, "width": 1.8, "dash": look.dash},
            marker={"color": look.colour, "symbol": look.symbol, "size": 9},
        )
    figure.update_xaxes(type="log")
    figure.update_yaxes(type="log")
    cells = [
        (row["arm"], row["budget"], words.large(row["flops"]), f"{row['loss']:.4f}", str(row["seeds"]))
        for row in found.by_budget.iter_rows(named=True)
    ]
    return Figure(
        key="curves",
        title="Loss against compute",
        note="Means over the seeds of each budget; both axes are logarithmic.",
        alt=f"{len(style)} arms at {found.by_budget['budget'].n_unique()} budgets",
        drawing=figure,
        table=frame_table(("arm", "budget", "FLOPs", found.metric, "seeds"), cells, 2),
    )


def _at_each_budget(found: LossComparison, style: Mapping[str, ArmStyle]) -> Figure:
    figure = blank("training FLOPs", "effective compute")
    figure.add_hline(y=1, line=NEUTRAL)
    rows: list[tuple[str, str, str]] = []
    for row in found.by_budget.filter(pl.col("arm") != found.baseline).drop_nulls("factor").iter_rows(named=True):
        look, known = style[row["arm"]], math.isfinite(row["high"]) and row["low"] > 0
        value = Estimate(row["factor"], row["low"], row["high"], None, ()) if known else single(row["factor"])
        first = not any(each[0] == row["arm"] for each in rows)
        mean_point(figure, look, look.label, single(row["flops"]), value)
        figure.data[-1].set({"showlegend": first})
        rows.append((row["arm"], row["budget"], words.times(Interval(row["factor"], row["low"], row["high"]))))
    figure.update_xaxes(type="log")
    figure.update_yaxes(type="log")
    return Figure(
        key="by-budget",
        title=f"Effective compute at each budget, against {found.baseline}",
        note="Above 1 is better. Bars are 95 % intervals of each budget alone, uncorrected; a point without a bar "
        "has an end beyond the baseline's curve.",
        alt="; ".join(f"{arm} at {budget}: {said}" for arm, budget, said in rows),
        drawing=figure,
        table=frame_table(("arm", "budget", "effective compute"), rows, 2),
    )


def _trade_off(found: LossComparison, style: Mapping[str, ArmStyle], cost: Cost) -> Iterator[Figure]:
    gaps = {
        row["arm"]: Estimate(row["difference"], row["low"], row["high"], None, ())
        for row in found.contrasts.drop_nulls("difference").iter_rows(named=True)
    }
    names = [name for name in style if name == found.baseline or (name in gaps and name in cost.ratios)]
    if len(names) < 3:
        return
    ratios = tuple(cost.ratios.get(name, SAME_RATIO) for name in names)
    values = tuple(gaps.get(name, NO_DIFFERENCE) for name in names)
    across = Ratios(f"{cost.label}, relative to {found.baseline}", ratios)
    plane = Plane([style[name] for name in names], [across], [LossDifferences(f"difference in {found.metric}", values)])
    yield Figure(
        key="trade-off",
        title=f"Difference in {found.metric} against {cost.name}",
        note=f"Bars are corrected 95 % intervals. {plane.explained}",
        alt="; ".join(" ".join(row) for row in plane.rows(names)),
        drawing=plane.drawing(),
        table=frame_table(("arm", f"difference in {found.metric}", cost.label), plane.rows(names)),
        switches=plane.switches,
        combined=plane.combined,
    )


def _tables(found: LossComparison) -> Iterator[Table]:
    if found.compute.height:
        yield frame_table(compute_words.HEADING, compute_words.table(found.compute), 2)
        if not found.contrasts["p"].count():
            return
    rows = [
        (
            row["arm"],
            row["against"],
            words.NONE if row["difference"] is None else _said(_estimate(row)),
            words.p_value(row["p"]),
            str(row["paired"]),
            row["verdict"],
        )
        for row in found.contrasts.iter_rows(named=True)
    ]
    yield frame_table(("arm", "against", f"difference in {found.metric}", "p", "paired seeds", "verdict"), rows, 2)


def _read(runs: pl.DataFrame) -> Table:
    """A row per run: its names as found, its last value and its step or budget, and its file."""
    shown = [name for name in RUN_COLUMNS if name in runs.columns and runs[name].count()]
    rows = [[_cell(value) for value in row] for row in runs.select(shown).iter_rows()]
    return frame_table(shown, rows, 2)


RUN_COLUMNS = ("arm", "seed", "size", "split", "rate", "loss", "step", "flops", "tokens", "tokens_per_second", "file")


def _cell(value: object) -> str:
    if value is None:
        return words.NONE
    return f"{value:.6g}" if isinstance(value, float) else str(value)
