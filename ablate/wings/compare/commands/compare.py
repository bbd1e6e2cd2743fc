"""Compare runs of any trainer by a table of their losses: which arms are better, by how much, and how surely.

FILE is a CSV, TSV, parquet, JSON (a list of records) or JSON-lines file, or - for CSV from standard input, with a row
for each run and the columns arm, seed, loss; optional: rate (learning rate), split (tuning or judging) and cost.
Lower is better; --higher-is-better is for accuracies, rewards and the like. A run whose loss is empty, NaN or infinite
has failed; leave out runs that have not ended. If a run has several rows, the last by a column such as step counts.
Runs at several sizes or lengths also have flops, or params (or a size such as 125M) and tokens, and optionally
tokens_per_second. From two budgets of the baseline on, each arm's effective compute is then given: x1.08 if the
baseline would need 1.08 times the compute to be as good. One seed per size is enough if there are a few sizes; the
output says which noise was used. --curve takes the baseline from another file.

A pattern such as 'logs/{arm}-s{seed}/trainer_state.json' reads the last losses from the logs of other trainers: Hugging
Face's Trainer, TensorBoard, Weights & Biases, JSON lines, CSV, text. A run whose log ends before others of its arm is
left out; one that ends in NaN has failed.

With --stores, FILE is a study instead, and its differences in these stores are summarised: a random-effects mean, and
the heterogeneity of the stores. Stores that have runs in common must be merged first (`ablate merge`).

Verdicts follow the rules of the reports: they compare means over all runs, draw the noise of each arm towards that of
the others, cancel what common seeds share, widen intervals for the choice of settings by tuning, and correct for the
number of arms.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ablate.commands import DONE, OptionError, add_json, print_json, print_table

if TYPE_CHECKING:
    import polars as pl


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "losses",
        metavar="FILE",
        help="a row for each run; columns arm, seed, loss [, rate, split, cost, size, params, flops, tokens, "
        "tokens_per_second]",
    )
    parser.add_argument("--baseline", metavar="ARM", help="the arm that others are compared with (default: the first)")
    parser.add_argument(
        "--metric",
        metavar="NAME",
        help="name of the loss: a column of FILE (default: loss), or in logs (default: a validation loss, such as "
        "eval_loss or val/loss); lower is better",
    )
    parser.add_argument(
        "--higher-is-better",
        action="store_true",
        help="higher values of the metric are better, as for accuracies and rewards; differences keep their sign",
    )
    parser.add_argument("--margin", type=float, metavar="X", help="the largest difference that does not matter")
    parser.add_argument("--sigma", type=float, metavar="X", help="standard deviation of one run, known from like runs")
    parser.add_argument(
        "--planned-seeds",
        type=int,
        metavar="N",
        help="judge a growing table, which will have N seeds, at planned looks",
    )
    parser.add_argument(
        "--curve", metavar="FILE", help="the baseline's runs at two budgets or more, in a file (or pattern) like FILE"
    )
    parser.add_argument("--list", action="store_true", help="list the runs as they are found, and judge nothing")
    parser.add_argument("--out", metavar="PAGE", help="write the comparison as one HTML file, too")
    parser.add_argument("--stores", nargs="+", metavar="DIR", help="summarise a study over these stores")
    parser.add_argument("--scale", help="scale of the study, with --stores")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate
    from ablate.wings.compare import compute_words

    if options.stores is not None:
        return _over_stores(options)
    if options.scale is not None:
        raise OptionError("--scale needs --stores")
    if options.list:
        return _list(options)
    found = ablate.compare(
        options.losses,
        baseline=options.baseline,
        margin=options.margin,
        metric=options.metric,
        higher_is_better=options.higher_is_better,
        sigma=options.sigma,
        planned_seeds=options.planned_seeds,
        curve=options.curve,
    )
    if options.out is not None:
        ablate.write_comparison(found, options.out)
    if options.json:
        print_json(found.document())
        return DONE
    if found.compute.height:
        print_table([compute_words.HEADING, *compute_words.table(found.compute)], text_columns=2)
        for row in found.compute.iter_rows(named=True):
            print(compute_words.sentence(row))
    if not found.compute.height or found.contrasts["p"].count():
        _print_differences(found.contrasts)
    if found.detectable is not None:
        print(f"These seeds detect a difference of {found.detectable:.2g} with 80 % power, if rates were chosen well.")
    for note in found.notes:
        print(f"Note: {note}.")
    return DONE


def _list(options: argparse.Namespace) -> int:
    """A line per arm (and size): seeds, last steps, losses and files."""
    from ablate.wings.compare.comparing import found_runs, frame_rows

    runs = found_runs(options.losses, options.metric)
    if options.json:
        print_json(frame_rows(runs))
        return DONE
    names = [name for name in ("arm", "size") if name in runs.columns]
    rows = []
    for of, rows_of in runs.group_by(names, maintain_order=True):
        seeds = ", ".join(map(str, rows_of["seed"]))
        steps = _span(rows_of["step"].drop_nulls().to_list(), "g") if "step" in runs.columns else "–"
        found = rows_of.filter(rows_of["loss"].is_finite())["loss"].to_list()
        files = rows_of["file"].unique(maintain_order=True).to_list() if "file" in runs.columns else []
        shown = f"{files[0]}{f' and {len(files) - 1} more' if len(files) > 1 else ''}" if files else "–"
        rows.append((*map(str, of), seeds, steps, _span(found, ".4f"), str(rows_of.height - len(found)), shown))
    print_table([(*names, "seeds", "last step", "loss", "without a loss", "file"), *rows], text_columns=len(names) + 1)
    arms = runs["arm"].n_unique()
    print(f"{runs.height} run{'s' * (runs.height > 1)} of {arms} arm{'s' * (arms > 1)}.")
    return DONE


def _span(values: list[float], form: str) -> str:
    """`1000`, or `500 to 1000`."""
    if not values:
        return "–"
    low, high = f"{min(values):{form}}", f"{max(values):{form}}"
    return low if low == high else f"{low} to {high}"


def _print_differences(contrasts: pl.DataFrame) -> None:
    from reports.page.wording.words import signed

    heading = ("arm", "against", "difference", "interval", "p", "verdict")
    rows = [
        (
            row["arm"],
            row["against"],
            "–" if row["difference"] is None else signed(row["difference"], 4),
            "–" if row["low"] is None else " to ".join(signed(row[end], 4) for end in ("low", "high")),
            "–" if row["p"] is None else f"{row['p']:.2g}",
            row["verdict"],
        )
        for row in contrasts.iter_rows(named=True)
    ]
    print_table([heading, *rows], text_columns=2)
    for row in contrasts.iter_rows(named=True):
        print(f"{row['arm']}: {row['reason']}.")


def _over_stores(options: argparse.Namespace) -> int:
    import ablate
    from reports.page.wording.words import signed

    for name in ("baseline", "metric", "margin", "sigma", "planned_seeds", "curve", "out"):
        if getattr(options, name) is not None:
            raise OptionError(f"--{name.replace('_', '-')} cannot be combined with --stores: the study has its own")
    if options.higher_is_better:
        raise OptionError("--higher-is-better cannot be combined with --stores, which compares losses")
    found = ablate.compare_stores(options.losses, options.stores, scale=options.scale)
    if options.json:
        print_json(found.document())
        return DONE
    heading = ("arm", "against", "stores", "difference", "interval", "p", "tau", "Q (p)", "I²")
    rows = [
        (
            row["arm"],
            row["against"],
            str(row["stores"]),
            signed(row["difference"], 4),
            " to ".join(signed(row[end], 4) for end in ("low", "high")),
            f"{row['p']:.2g}",
            f"{row['tau']:.2g}",
            f"{row['q']:.2f} ({row['q_p']:.2g})",
            f"{100 * row['i2']:.0f} %",
        )
        for row in found.differences.iter_rows(named=True)
    ]
    print_table([heading, *rows], text_columns=2)
    print(
        "tau: standard deviation of true differences between stores, in nats; I²: share of variance that is not noise."
    )
    for note in found.notes:
        print(f"Note: {note}.")
    return DONE
