"""Continue prompts with a trained run's model, or fill in their holes.

RUN is a digest (or the beginning of one) in the store, STUDY/ARM or STUDY/ARM/SEED (by default the first seed), or the
folder of a run. Decoding is greedy unless a temperature is given.
For example: ablate generate 3fa2 --prompt 'def f(' 'import' --temperature 0.8 --top-p 0.95

Models trained with masked, span_corruption or blank_infilling fill in holes, from left to right:
ablate generate 41c0 --prompt 'for i in___(10):'. Leave out the space before a hole: tokens include it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ablate.commands import DONE, add_json, add_store, given, positive, print_json

if TYPE_CHECKING:
    from pydantic import JsonValue

    from ablate import Generated
    from store.documents import JsonObject

SAMPLING = {
    "temperature": (float, "softmax temperature; 0 is greedy decoding (default: 0)"),
    "top_k": (int, "sample from the K likeliest tokens"),
    "top_p": (float, "sample from the likeliest tokens whose total probability is P"),
    "min_p": (float, "sample from tokens at least P times as likely as the likeliest"),
    "repetition_penalty": (float, "values above 1 penalise tokens that occurred before"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="digest, STUDY/ARM or folder of a trained run")
    parser.add_argument("--prompt", nargs="+", required=True, metavar="TEXT", help="one or more prompts")
    parser.add_argument(
        "--tokens",
        type=positive,
        metavar="N",
        help="maximum number of new tokens, or of tokens in each hole (default: 64); for a model trained with masked,"
        " the exact number (default: 1)",
    )
    parser.add_argument("--hole", metavar="MARK", help="marker of a hole (default: ___)")
    parser.add_argument(
        "--stop", nargs="+", default=[], metavar="TEXT", help="strings that end the text; they are cut off"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of sampling (default: 0)")
    for name, (kind, words) in SAMPLING.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar="K" if kind is int else "P", help=words)
    add_store(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate

    settings = given(options, "tokens", "stop", "hole", "seed", "store", *SAMPLING)
    found = ablate.generate(options.run, options.prompt, **settings)
    if options.json:
        print_json(_document(found))
    else:
        print("\n".join(each.text for each in found))
    return DONE


def _document(found: Sequence[Generated]) -> JsonObject:
    digest = found[0].digest
    if found[0].fills_holes:
        filled: list[JsonValue] = [{"prompt": each.prompt, "text": each.text, "fills": [*each.new]} for each in found]
        return {"digest": digest, "filled": filled}
    continued: list[JsonValue] = [{"prompt": each.prompt, "text": each.new[0]} for each in found]
    return {"digest": digest, "continuations": continued}
