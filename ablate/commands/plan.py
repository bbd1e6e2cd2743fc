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
    from ablate.commands._studies import planned
    from ablate.documents import matched_line, plan_json, plan_rows
    from ablate.numerics import Numerics
    from ablate.store import Store
    from evals.matmul import peak_flops_per_second

    plan = planned(options)
    numerics = Numerics(**plan.runs[0].identity["numerics"])
    peak = peak_flops_per_second(numerics.device, numerics.torch_dtype)
    store = Store(options.store)
    done = {run.digest: store.read_result(run.digest) is not None for run in plan.runs}
    if options.json:
        document = plan_json(plan, peak)
        for row in document["runs"]:
            row["reused"] = done[row["digest"]]
        print_json(document)
        return 0
    print(plan.study.question)
    print_table(plan_rows(plan, peak))
    print(matched_line(plan))
    print(f"{len(done)} runs, of which {sum(done.values())} are in {store.root}/ already")
    return 0
