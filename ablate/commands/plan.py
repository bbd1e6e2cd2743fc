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
    from ablate.commands._studies import planned
    from ablate.documents import plan_json, plan_rows
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
    print(f"{len(done)} runs, of which {sum(done.values())} are in {store.root}/ already")
    return 0
