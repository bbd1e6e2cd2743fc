"""Show what a study would run and cost, without training.

Time is estimated from this machine's matmul speed, measured within the last hour. If the budget is in seconds, the time
of a training step is measured for every arm, with --workers processes at once, unless the store has it already.

A run that may not fit in memory is reported. --details predicts each arm's peak memory and attention backend, by
tracing a training step on tensors without data (a second per arm), and the transformers architecture of its export.

The difference that the study will probably detect follows from the noise of comparable stored runs, or else from noise
measured elsewhere at the nearest size.

--minutes sizes the model and its training for this machine, and prints the lines to paste into the study.

--on predicts time and memory on a device that is not at hand, without a network, and what bounds a training step there;
--hours chooses the largest scale that fits:
  ablate plan studies/norm_placement.yaml --on h100 --hours 8

--at applies the arms to a published model at full size instead, and predicts parameters, weight and cache bytes,
prefill and decoding time on a device, by a roofline. For example:
  ablate plan studies/gqa_groups.yaml --at llama3-70b --context 131072 --device h200
--memory instead of --device gives the largest batch that fits, at several contexts:
  ablate plan studies/gqa_groups.yaml --at llama3 --memory 80GB
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from ablate.commands import (
    DONE,
    HERE,
    OptionError,
    add_json,
    add_run_options,
    add_study,
    given,
    positive,
    print_json,
    print_prose,
    print_table,
)

DTYPES = ("bfloat16", "float16", "float32")
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
        "--minutes",
        type=float,
        metavar="N",
        help="choose the largest model that fits in N minutes on this machine, and print the lines to paste",
    )
    parser.add_argument(
        "--details", action="store_true", help="also predict peak memory, attention backends and exports (takes longer)"
    )
    parser.add_argument(
        "--device",
        help="cpu or cuda (default: cuda if there is a GPU); with --at, a device such as h200, or `this`",
    )
    there = parser.add_argument_group("predictions for another device")
    there.add_argument("--on", metavar="DEVICE", help="a device other than this machine's, such as h100 or rtx4090")
    there.add_argument("--hours", type=float, help="choose the largest scale that fits in this many hours")
    paper = parser.add_argument_group("predictions at full size")
    paper.add_argument("--at", metavar="PRESET", help="a preset, or one of its sizes such as llama3-70b")
    paper.add_argument("--context", type=positive, help="tokens per row (default: 8192; with --memory, several)")
    paper.add_argument("--batch", type=positive, help="rows (default: 1)")
    paper.add_argument("--memory", metavar="SIZE", help="show the largest batch that fits in SIZE, such as 80GB")
    paper.add_argument("--dtype", choices=DTYPES, help="dtype of weights, cache and matmuls (default: bfloat16)")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    if options.on is not None:
        import ablate

        for name in ("at", "context", "batch", "dtype", "memory", "device", "detect", "microbatch"):
            if getattr(options, name) is not None:
                raise OptionError(f"--{name} cannot be combined with --on")
        found = ablate.plan_on(options.study, options.on, **given(options, "scale", "sets", "hours"))
        if options.json:
            print_json(found.document())
            return DONE
        print_prose([found.study.question])
        print_table(found.table())
        print_prose(found.notes())
        return DONE
    if options.hours is not None:
        raise OptionError("--hours needs --on DEVICE")
    if options.at is None:
        return _show_plan(options)
    return _show_scaleup(options) if options.memory is None else _show_fit(options)


def _show_plan(options: argparse.Namespace) -> int:
    """Print the plan of a study. Raises OptionError for options of --at."""
    import ablate
    from ablate.api.recorded import recorded, sentence

    for name in ("context", "batch", "dtype", "memory"):
        if getattr(options, name) is not None:
            raise OptionError(f"--{name} needs --at PRESET")
    if options.device not in (None, *HERE):
        raise OptionError(f"--device {options.device}: expected {' or '.join(HERE)}; other devices need --at PRESET")
    if options.minutes is not None:
        return _show_sized(options)
    plan = ablate.plan(
        options.study,
        **given(options, "scale", "sets", "store", "device", *SETTINGS),
    )
    if options.detect is not None and not options.detect > 0:
        raise OptionError(f"--detect {options.detect:g}: expected a difference above 0")
    detection = plan.detect(options.detect) if options.detect else None
    known = recorded(plan.study.path) if plan.study.path else []
    if options.json:
        print_json({**plan.document(), "detect": asdict(detection) if detection else None, "recorded": known})
        return DONE
    print_prose([plan.study.question])
    for rung, rows in plan.tables(options.details):
        if rung:
            print(f"\n{rung}")
        print_table(rows)
    print_prose([*plan.notes(options.details), *([str(detection)] if detection else [])])
    print_prose(f"known: {sentence(each)}" for each in known)
    return DONE


def _show_sized(options: argparse.Namespace) -> int:
    import ablate

    if options.detect is not None or options.details:
        raise OptionError("--minutes cannot be combined with --detect or --details")
    found = ablate.size(options.study, options.minutes, **given(options, "scale", "sets", "store", "device"))
    if options.json:
        print_json(found.document())
        return DONE
    for _, rows in found.plan.tables():
        print_table(rows)
    print_prose(found.plan.notes())
    print("\n".join(["", *found.lines()]))
    return DONE


def _show_scaleup(options: argparse.Namespace) -> int:
    import ablate
    from ablate.commands._scaleup import HEADER, explained, row
    from evals.costs.devices import THIS, names

    if options.device is None:
        raise OptionError(f"--at needs --device: one of {', '.join((*names(), THIS))}")
    found = ablate.scale_up(options.study, **_paper(options, "device", "context"))
    if options.json:
        print_json(found.document())
        return DONE
    print(found.study.question)
    print_table([HEADER, *map(row, found.arms)])
    print("\n".join(explained(found)))
    return DONE


def _show_fit(options: argparse.Namespace) -> int:
    import ablate
    from ablate.commands._scaleup import fit_explained, fit_header, fit_row

    if options.device is not None:
        raise OptionError(
            f"--memory cannot be combined with --device: what fits does not depend on {options.device}'s speed"
        )
    contexts: dict[str, Any] = {} if options.context is None else {"contexts": (options.context,)}
    found = ablate.fit(options.study, **_paper(options, "memory"), **contexts)
    if options.json:
        print_json(found.document())
        return DONE
    print(found.study.question)
    print_table([fit_header(found.room), *map(fit_row, found.arms)])
    print("\n".join(fit_explained(found)))
    return DONE


def _paper(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The options of a prediction at full size that were given."""
    found = given(options, "at", "scale", "sets", "batch", "dtype", *names)
    return {name: value for name, value in found.items() if value is not None}
