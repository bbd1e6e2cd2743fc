"""Compare throughput, memory and decoding with transformers on this machine, and training with other libraries.

MODEL is a preset of the zoo (default: a Llama-style model of 30 M parameters) or the folder of a checkpoint. Both
libraries run the same architecture with the same weights in one process, alternating. The training step of a Llama is
also compared with x-transformers and litgpt if they are installed, at the same shape but with their own weights. For
example:
  ablate bench gpt2 --set n_layers=4 --context 512 --batch 8
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ablate.commands import DONE, HERE, add_json, given, positive, print_json, print_table

DTYPES = ("float32", "bfloat16")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL")
    parser.add_argument(
        "--set",
        dest="sets",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="edit the model (may be repeated)",
    )
    parser.add_argument("--context", type=positive, default=256, help="tokens per row (default: 256)")
    parser.add_argument("--batch", type=positive, default=4, help="rows (default: 4)")
    parser.add_argument("--rounds", type=positive, default=5, help="measured rounds (default: 5)")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="dtype of weights, cache and matmuls")
    parser.add_argument("--compile", action="store_true", help="compile our training step and decoding, not theirs")
    parser.add_argument("--device", choices=HERE, help="default: cuda if there is a GPU, else cpu")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="plot shares of the machine's ceiling, as a web page")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate

    where = given(options, "sets", "context", "batch", "rounds", "dtype", "compile", "device")
    found = ablate.bench(options.model, **where)
    if options.plot is not None:
        from ablate.wings.foretell.commands._benching import plotted

        options.plot.write_text(plotted(found), encoding="utf-8")
    if options.json:
        print_json(found)
        return DONE
    from ablate.wings.foretell.commands._benching import HEADER, explained, rows

    print_table([HEADER, *rows(found)])
    print(explained(found))
    return DONE
