"""Show what a study would run, and what it would cost; train nothing.

Time is estimated from the matmul speed of this machine, which is measured for a moment. Where the budget is in seconds,
the time of a training step is measured for every arm with --workers runs at once, unless the store knows it.

With --at, the arms as edits of a published model at full size instead: parameters, weight and cache bytes, prefill and
decode time on a device, predicted by a roofline. For example:
  ablate plan studies/gqa_groups.yaml --at llama3-70b --context 131072 --device h200
With --memory in place of --device, the largest batch that fits at several contexts:
  ablate plan studies/gqa_groups.yaml --at llama3 --memory 80GB
"""

from __future__ import annotations

import argparse

from ablate.cli import InputError
from ablate.commands import HERE, add_json, add_study, add_workers, positive, print_json, print_table

DTYPES = ("bfloat16", "float16", "float32")


def configure(parser: argparse.ArgumentParser) -> None:
    add_study(parser, device=False)
    add_workers(parser)
    parser.add_argument(
        "--device", help="cpu or cuda, by default cuda where there is a GPU; with --at a device such as h200, or this"
    )
    paper = parser.add_argument_group("scale-up on paper")
    paper.add_argument("--at", metavar="PRESET", help="a preset, or one of its sizes, such as llama3-70b")
    paper.add_argument("--context", type=positive, help="tokens per row (default: 8192, with --memory several)")
    paper.add_argument("--batch", type=positive, help="rows (default: 1)")
    paper.add_argument("--memory", metavar="SIZE", help="the largest batch that fits into, e.g., 80GB")
    paper.add_argument("--dtype", choices=DTYPES, help="of weights, cache and products (default: bfloat16)")
    add_json(parser)
    parser.set_defaults(engine="local")


def run(options: argparse.Namespace) -> int:
    if options.at is not None:
        from ablate.commands._scaleup import show

        return show(options)
    _refuse_paper(options)
    return _show_plan(options)


def _refuse_paper(options: argparse.Namespace) -> None:
    """Settings of a prediction mean nothing in a plan of runs."""
    for name in ("context", "batch", "dtype", "memory"):
        if getattr(options, name) is not None:
            raise InputError(f"--{name} belongs to --at PRESET")
    if options.device not in (None, *HERE):
        raise InputError(
            f"--device {options.device}: runs are on {' or '.join(HERE)}; other devices belong to --at PRESET"
        )


def _show_plan(options: argparse.Namespace) -> int:
    from ablate.commands._studies import asked, foreseen, remarks
    from ablate.machine.numerics import Numerics
    from ablate.planning.plan_document import matched_line, plan_json, plan_rows
    from evals.costs.matmul import peak_flops_per_second

    this = asked(options)
    outcome, tuned = foreseen(this)
    plan = outcome.plan
    numerics = Numerics(**plan.runs[0].identity["numerics"])
    peak = peak_flops_per_second(numerics.device, numerics.torch_dtype)
    done = {run.digest: this.loss(run.digest) is not None for size in outcome.sizes for run in size.plan.runs}
    if options.json:
        document = plan_json(outcome, peak) | {"tuned": tuned}
        for row in document["runs"]:
            row["reused"] = done[row["digest"]]
        print_json(document)
        return 0
    print(plan.study.question)
    for size in outcome.sizes:
        if size.plan.study.rung:
            print(f"\n{size.plan.study.rung}")
        print_table(plan_rows(size.plan, peak))
    print(matched_line(plan))
    for remark in remarks(this.study, tuned):
        print(remark)
    if this.study.is_search_alone:
        print("no arms: `ablate search` tries the study's space, each trial at this budget")
        return 0
    print(f"{len(done)} runs, of which {sum(done.values())} are in {this.store.root}/ already")
    return 0
