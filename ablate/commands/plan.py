"""Show what a study would run and cost, without training.

Time is estimated from this machine's matmul speed, measured within the last hour. If the budget is in seconds, the time
of a training step is measured for every arm, with --workers processes at once, unless the store has it already.

A run that may not fit in memory is reported. --details predicts each arm's peak memory and attention backend, by
tracing a training step on tensors without data (a second per arm), and the transformers architecture of its export.

The difference that the study will probably detect follows from the noise of comparable stored runs, or else from noise
measured elsewhere at the nearest size.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ablate.commands import (
    DONE,
    HERE,
    OptionError,
    add_json,
    add_run_options,
    add_study,
    given,
    print_json,
    print_prose,
    print_table,
)
from store.extensions import modules_of

SETTINGS = ("workers", "workers_per_gpu", "microbatch", "recompute", "devices", "shard")
"""Settings of execution that a plan on this machine depends on."""


def configure(parser: argparse.ArgumentParser) -> None:
    add_study(parser)
    add_run_options(parser, *SETTINGS)
    parser.add_argument(
        "--detect",
        type=float,
        metavar="NATS",
        help="show how many seeds detect a difference of NATS with 80 %% power, and their time",
    )
    parser.add_argument(
        "--details", action="store_true", help="also predict peak memory, attention backends and exports (takes longer)"
    )
    parser.add_argument(
        "--device",
        help="cpu or cuda (default: cuda if there is a GPU); with --at, a device such as h200, or `this`",
    )
    for each in modules_of(__name__):
        each.configure(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    for each in modules_of(__name__):
        if each.wanted(options):
            return int(each.run(options))
    import ablate

    if options.device not in (None, *HERE):
        raise OptionError(f"--device {options.device}: expected {' or '.join(HERE)}; other devices need --at PRESET")
    plan = ablate.plan(
        options.study,
        **given(options, "scale", "sets", "store", "device", *SETTINGS),
    )
    if options.detect is not None and not options.detect > 0:
        raise OptionError(f"--detect {options.detect:g}: expected a difference above 0")
    detection = plan.detect(options.detect) if options.detect else None
    known = modules_of("ablate.commands.plan.known")
    if options.json:
        more = {key: value for each in known for key, value in each.plan_json(plan.study).items()}
        print_json({**plan.document(), "detect": asdict(detection) if detection else None, **more})
        return DONE
    print_prose([plan.study.question])
    for rung, rows in plan.tables(options.details):
        if rung:
            print(f"\n{rung}")
        print_table(rows)
    print_prose([*plan.notes(options.details), *([str(detection)] if detection else [])])
    print_prose(line for each in known for line in each.remarks(plan.study))
    return DONE
