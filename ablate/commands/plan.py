"""Show what a study would run, and what it would cost; train nothing.

Time is estimated from the matmul speed of this machine, which is measured for a moment.
"""

from __future__ import annotations

import argparse

from ablate.commands import add_json, add_study, print_json, print_table


def configure(parser: argparse.ArgumentParser) -> None:
    add_study(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    from ablate.commands._studies import asked, foreseen, remarks
    from ablate.documents import plan_json, plan_rows
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
    for remark in remarks(this.study, tuned):
        print(remark)
    print(f"{len(done)} runs, of which {sum(done.values())} are in {this.store.root}/ already")
    return 0
