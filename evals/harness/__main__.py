"""`python -m evals`: lm-eval with the models of the zoo, and the data of its tasks.

usage: python -m evals lm-eval --model zoo --model_args path=RUN[,device=cuda,batch_size=auto] --tasks NAME …
       python -m evals fetch NAME … [--include DIR]…

lm-eval is the harness's own command line, with all of its commands and options (`python -m evals lm-eval run --help`).
RUN is the folder of a run in a store, or any folder with spec.json, weights.safetensors and tokenizer.json. Other
arguments of the model: dtype, context, eos, seed.

fetch downloads the data sets of tasks and groups into the Hugging Face cache, for later use without a network.

`ablate eval RUN --tasks NAME …` is the shorter way to the same scores; it keeps them in the store.
"""

from __future__ import annotations

import argparse
import sys

from store.terminal import visible, visible_streams


def main(arguments: list[str]) -> int:
    """Run one command and return its exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    if arguments[0] not in _COMMANDS:
        return _refused(f"unknown command '{arguments[0]}' (see `python -m evals --help`)")
    return _COMMANDS[arguments[0]](arguments[1:])


def _lm_eval(arguments: list[str]) -> int:
    from lm_eval.__main__ import cli_evaluate  # noqa: PLC0415 (slow to load)

    from evals.harness.lm_eval_model import ModelFolderError  # noqa: PLC0415 (registers the model)
    from store import StoreError  # noqa: PLC0415

    sys.argv = ["lm-eval", *arguments]
    try:
        cli_evaluate()
    except (ModelFolderError, StoreError) as error:
        return _refused(error)
    return 0


def _fetch(arguments: list[str]) -> int:
    from evals.found import skipped_lines  # noqa: PLC0415
    from evals.harness.evaluations.tasks import TasksSpec  # noqa: PLC0415 (slow to load)
    from evals.harness.loading import UnknownTaskError, load_tasks  # noqa: PLC0415 (slow to load)

    parser = argparse.ArgumentParser(prog="python -m evals fetch")
    parser.add_argument("tasks", nargs="+", metavar="NAME", help="tasks and groups of lm-eval, or paths of task files")
    parser.add_argument("--include", action="append", default=[], metavar="DIR", help="a folder with task files")
    with visible_streams():
        given = parser.parse_args(arguments)
    try:
        loaded = load_tasks(TasksSpec(tasks=given.tasks, include=given.include), [])
    except UnknownTaskError as error:
        return _refused(error)
    for line in skipped_lines(loaded.skipped, loaded.task_groups()):
        _refused(line)
    print(f"fetched: the data of {len(loaded.tasks)} tasks")
    return 1 if loaded.skipped else 0


def _refused(reason: object) -> int:
    """Print why something was refused, in which names of others may occur, and return the status for it."""
    print(visible(f"evals: {reason}"), file=sys.stderr)
    return 2


_COMMANDS = {"lm-eval": _lm_eval, "fetch": _fetch}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
