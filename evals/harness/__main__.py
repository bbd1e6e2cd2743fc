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


def main(arguments: list[str]) -> int:
    """Run one command and return its exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    if arguments[0] not in _COMMANDS:
        print(f"evals: unknown command '{arguments[0]}' (see `python -m evals --help`)", file=sys.stderr)
        return 2
    return _COMMANDS[arguments[0]](arguments[1:])


def _lm_eval(arguments: list[str]) -> int:
    from lm_eval.__main__ import cli_evaluate  # noqa: PLC0415 (slow to load)

    from evals.harness.lm_eval_model import ModelFolderError  # noqa: PLC0415 (registers the model)
    from store import StoreError  # noqa: PLC0415

    sys.argv = ["lm-eval", *arguments]
    try:
        cli_evaluate()
    except (ModelFolderError, StoreError) as error:
        print(f"evals: {error}", file=sys.stderr)
        return 2
    return 0


def _fetch(arguments: list[str]) -> int:
    from evals.found import skipped_lines  # noqa: PLC0415
    from evals.harness.evaluations.tasks import TasksSpec  # noqa: PLC0415 (slow to load)
    from evals.harness.loading import UnknownTaskError, load_tasks  # noqa: PLC0415 (slow to load)

    parser = argparse.ArgumentParser(prog="python -m evals fetch")
    parser.add_argument("tasks", nargs="+", metavar="NAME", help="tasks and groups of lm-eval, or paths of task files")
    parser.add_argument("--include", action="append", default=[], metavar="DIR", help="a folder with task files")
    given = parser.parse_args(arguments)
    try:
        loaded = load_tasks(TasksSpec(tasks=given.tasks, include=given.include), [])
    except UnknownTaskError as error:
        print(f"evals: {error}", file=sys.stderr)
        return 2
    for line in skipped_lines(loaded.skipped, loaded.task_groups()):
        print(f"evals: {line}", file=sys.stderr)
    print(f"fetched: the data of {len(loaded.tasks)} tasks")
    return 1 if loaded.skipped else 0


_COMMANDS = {"lm-eval": _lm_eval, "fetch": _fetch}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
