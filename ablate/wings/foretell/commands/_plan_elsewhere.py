"""`ablate plan` for what is not at hand: `--on` another device, `--at` full size.

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
from typing import Any

from ablate.commands import DONE, OptionError, given, positive, print_json, print_prose, print_table

DTYPES = ("bfloat16", "float16", "float32")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = f"{parser.description}\n\n{(__doc__ or '').partition(chr(10) * 2)[2]}".rstrip()
    there = parser.add_argument_group("predictions for another device")
    there.add_argument("--on", metavar="DEVICE", help="a device other than this machine's, such as h100 or rtx4090")
    there.add_argument("--hours", type=float, help="choose the largest scale that fits in this many hours")
    paper = parser.add_argument_group("predictions at full size")
    paper.add_argument("--at", metavar="PRESET", help="a preset, or one of its sizes such as llama3-70b")
    paper.add_argument("--context", type=positive, help="tokens per row (default: 8192; with --memory, several)")
    paper.add_argument("--batch", type=positive, help="rows (default: 1)")
    paper.add_argument("--memory", metavar="SIZE", help="show the largest batch that fits in SIZE, such as 80GB")
    paper.add_argument("--dtype", choices=DTYPES, help="dtype of weights, cache and matmuls (default: bfloat16)")


def wanted(options: argparse.Namespace) -> bool:
    """Whether the plan is for elsewhere. Raises OptionError for options without the one that they belong to."""
    if options.on is not None:
        return True
    if options.hours is not None:
        raise OptionError("--hours needs --on DEVICE")
    for name in ("context", "batch", "dtype", "memory"):
        if options.at is None and getattr(options, name) is not None:
            raise OptionError(f"--{name} needs --at PRESET")
    return options.at is not None


def run(options: argparse.Namespace) -> int:
    if options.on is None:
        return _show_scaleup(options) if options.memory is None else _show_fit(options)
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


def _show_scaleup(options: argparse.Namespace) -> int:
    import ablate
    from ablate.wings.foretell.commands._scaleup import HEADER, explained, row
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
    from ablate.wings.foretell.commands._scaleup import fit_explained, fit_header, fit_row

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
