"""`python -m evals`: lm-eval with the models of the zoo.

usage: python -m evals lm-eval --model zoo --model_args path=RUN[,device=cuda,batch_size=auto] --tasks NAME …

lm-eval is the harness's own command line, with all of its commands and options (`python -m evals lm-eval run --help`).
RUN is the folder of a run in a store, or any folder with spec.json, weights.safetensors and tokenizer.json. Other
arguments of the model: dtype, context, eos, seed.

`ablate eval RUN --tasks NAME …` is the shorter way to the same scores; it keeps them in the store.
"""

from __future__ import annotations

import sys


def main(arguments: list[str]) -> int:
    """Run one command and return its exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    if arguments[0] != "lm-eval":
        print(f"evals: unknown command '{arguments[0]}' (see `python -m evals --help`)", file=sys.stderr)
        return 2
    from lm_eval.__main__ import cli_evaluate  # noqa: PLC0415 (slow to load)

    from evals.checkpoint import CheckpointError  # noqa: PLC0415 (registers the model)

    sys.argv = ["lm-eval", *arguments[1:]]
    try:
        cli_evaluate()
    except CheckpointError as error:
        print(f"evals: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
