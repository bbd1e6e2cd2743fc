"""Judge losses of your own runs: which arms are better, by how much, and how sure that is.

FILE is a CSV, parquet or JSON-lines file with a row for each run and the columns arm, seed, loss; where known also rate
(learning rate), split (tuning or judging) and cost. A pattern such as 'logs/{arm}-s{seed}/trainer_state.json' reads
the last losses from the logs of other trainers: Hugging Face's Trainer, TensorBoard, Weights & Biases, CSV, text.

Verdicts are made as the reports make them: one noise model for all runs, seeds paired where arms share them, room for
tuning, corrected for the number of arms.
"""

from __future__ import annotations

import argparse
import math

from ablate.commands import DONE, add_json, print_json, print_table


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "losses", metavar="FILE", help="a row for each run; columns arm, seed, loss [, rate, split, cost]"
    )
    parser.add_argument("--baseline", metavar="ARM", help="the arm that others are compared with (default: the first)")
    parser.add_argument(
        "--metric",
        metavar="NAME",
        help="name of the loss in logs (default: eval_loss, eval/loss, val_loss or val loss)",
    )
    parser.add_argument("--margin", type=float, metavar="X", help="the largest difference in loss that does not matter")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate

    found = ablate.compare(options.losses, baseline=options.baseline, margin=options.margin, metric=options.metric)
    if options.json:
        print_json(found.document())
        return DONE
    heading = ("arm", "against", "difference", "interval", "p", "verdict", "reason")
    rows = [
        (
            row["arm"],
            row["against"],
            _signed(row["difference"]),
            "–" if row["low"] is None else f"{_signed(row['low'])} to {_signed(row['high'])}",
            "–" if row["p"] is None else f"{row['p']:.2g}",
            row["verdict"],
            row["reason"],
        )
        for row in found.contrasts.iter_rows(named=True)
    ]
    print_table([heading, *rows])
    if found.detectable is not None:
        print(f"These seeds detect a difference of {found.detectable:.2g} with 80 % power, if rates were chosen well.")
    for note in found.notes:
        print(f"Note: {note}.")
    return DONE


def _signed(value: float | None) -> str:
    if value is None:
        return "–"
    if math.isinf(value):
        return "−∞" if value < 0 else "+∞"
    return f"{value:+.4f}".replace("-", "−")
