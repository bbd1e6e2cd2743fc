# ruff: noqa: N999
"""Bring in a model trained elsewhere as a run, measured and evaluated like those of studies.

DIR is a folder written by transformers, peft or zoo.save. By default the model is scored on Python's standard library,
or with --text on your own files; --study uses a study's text, context, measurements and evaluations, so that the
model's numbers are comparable with those of its arms. `ablate report STORE` then shows it, and
`ablate eval NAME --tasks …` runs more evaluations. For example:
  ablate import checkpoints/SmolLM2-135M --study norm_placement
  ablate import checkpoints/mine --text 'notes/*.md' --tasks blimp --limit 100
"""

from __future__ import annotations

import argparse
import shlex

from ablate.commands import DONE, HERE, add_json, add_store, given, positive, print_json, suggested
from ablate.wings.evaluate.commands.eval import settings, show

OPTIONS = ("name", "study", "scale", "sets", "text", "context", "measure", "dtype", "device", "allow_code", "store")


def configure(parser: argparse.ArgumentParser) -> None:
    from ablate.wings.evaluate import asking

    parser.add_argument("directory", metavar="DIR", help="a checkpoint folder")
    parser.add_argument("--name", help="the name in reports and for other commands (default: the folder's)")
    parser.add_argument("--study", metavar="STUDY", help="name of a shipped study, or the path of a file")
    parser.add_argument("--scale", help="a scale of the study")
    parser.add_argument(
        "--set", dest="sets", action="append", default=[], metavar="PATH=VALUE", help="edit the study (may be repeated)"
    )
    parser.add_argument("--text", nargs="+", default=[], metavar="FILE", help="text files, instead of a study's text")
    parser.add_argument("--context", type=positive, help="tokens per window (default: the study's, or 1024)")
    parser.add_argument("--no-measure", dest="measure", action="store_false", help="skip speed and memory measurements")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="dtype of matmuls")
    parser.add_argument("--device", choices=HERE, help="default: cuda if there is a GPU, else cpu")
    parser.add_argument("--allow-code", action="store_true", help="allow the study's lm-eval task files to run code")
    asking.add_options(parser)
    add_store(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate

    found = ablate.import_model(options.directory, **given(options, *OPTIONS), **settings(options))
    if options.json:
        print_json(found.document())
        return DONE
    from reports.page.wording import words

    result, measured = found.result, found.measured
    size = f"{words.count(result.parameters)} parameters"
    lines = [f"{found.name}: {size}, loss {result.loss:.4f} nats/token, {result.bits_per_byte:.4f} bits/byte"]
    if measured is not None:
        cache = f"{measured.kv_bytes_per_token or 0:,.0f} bytes/token"
        speed = f", decoding {measured.decoding_speed:,.0f} tokens/s" if measured.decoding_speed else ""
        lines.append(f"KV cache {cache}{speed}")
    print("\n".join(lines))
    if found.scores is not None:
        show(found.scores)
    evaluating = suggested(f"ablate eval {found.name} --tasks …", options)
    print(f"`ablate report {shlex.quote(str(options.store))}` shows it; `{evaluating}` runs more evaluations.")
    return DONE
