"""Show what a study would run, and what it would cost; train nothing.

Time is estimated from the matmul speed of this machine, which is measured for a moment. Where the budget is in seconds,
the time of a training step is measured for every arm with --workers runs at once, unless the store knows it.
"""

from __future__ import annotations

import argparse

from ablate.commands import add_json, add_study, add_workers, print_json, print_table


def configure(parser: argparse.ArgumentParser) -> None:
    add_study(parser)
    add_workers(parser)
    add_json(parser)
    parser.set_defaults(engine="local")


def run(options: argparse.Namespace) -> int:
    from ablate.commands._studies import asked, foreseen, remarks
    from ablate.documents import matched_line, plan_json, plan_rows
    from ablate.numerics import Numerics
    from evals.matmul import peak_flops_per_second

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
    print(f"{len(done)} runs, of which {sum(done.values())} are in {this.store.root}/ already")
    return 0
