"""Show the runs in progress, and the progress of each study of a store.

While a study tunes its arms, the runs are those of the current round. Runs of searches are only listed among those in
progress. `ablate list` shows the answers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from ablate.commands import DONE, add_json, add_store, print_json, print_table

if TYPE_CHECKING:
    from ablate.wings.browse.status import RunningRun, StudyState

BEGIN = (
    ("ablate run norm_placement --scale smoke {store}", "train, measure and report a small study, in about a minute"),
    ("ablate list --shipped", "list the studies that ship with the tool"),
    ("ablate new my_question", "start a study of your own"),
    ("ablate zoo", "list the parts of models"),
)
GO_ON = (
    ("ablate list {store}", "the answers so far"),
    ("ablate list --running {store}", "runs in progress"),
    ("ablate report STUDY {store}", "re-render a study's page"),
    ("ablate new my_question", "start a study of your own"),
)
"""Commands and their effects: `BEGIN` for an empty store, `GO_ON` for one with studies."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--next", action="store_true", help="suggest the next commands, as `ablate` alone does")
    add_store(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    from ablate.wings.browse.status import running_elsewhere, states
    from store import Store
    from store.documents.shell import store_option

    store = Store(options.store)
    found = states(store)
    others = running_elsewhere(store, found)
    if options.json:
        print_json({"studies": [asdict(each) for each in found], "elsewhere": [asdict(run) for run in others]})
        return DONE
    if found:
        rows = [("study", "scale", "stage", "runs ended", "failed", "running")]
        for each in found:
            counts = str(each.failed or "–"), str(len(each.running) or "–")
            stage = each.stage or ("ended" if each.ended == each.runs else "training")
            rows.append((each.name, each.scale, stage, f"{each.ended}/{each.runs}", *counts))
        print_table(rows, text_columns=3)
    if running := list(_running(found, others)):
        print_table([("run", "step", "last heartbeat", "digest"), *running])
    elif not found and not options.next:
        print(f"{options.store}/ has no studies yet.")
    if options.next:
        where = store_option(store.root)
        commands = [(command.format(store=where).rstrip(), effect) for command, effect in (GO_ON if found else BEGIN)]
        width = max(len(command) for command, _ in commands)
        print("Next:")
        for command, effect in commands:
            print(f"  {command:{width}}   {effect}")
        print("`ablate --help` lists every command.")
    return DONE


def _running(states: Sequence[StudyState], others: Sequence[RunningRun]) -> Iterator[tuple[str, ...]]:
    of_studies = (
        (f"{state.name}-{state.scale}/{run.arm}/{run.seed}", run) for state in states for run in state.running
    )
    for name, run in (*of_studies, *((f"{run.arm}, seed {run.seed}", run) for run in others)):
        yield name, f"{run.step:,}/{run.steps:,}", f"{run.beat_seconds_ago:.0f} s ago", run.digest
