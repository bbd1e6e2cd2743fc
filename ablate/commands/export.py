"""Write the model of a trained run as a transformers checkpoint, with its tokenizer.

RUN is a digest (or the beginning of one) in the store, or the folder of a run. DIR can then be loaded with
AutoModelForCausalLM.from_pretrained and AutoTokenizer.from_pretrained, or by lm-eval with --model hf. If transformers
does not have the architecture, an error says which part is missing. Needs transformers:
pip install 'ablate[hf]'.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ablate.commands import DONE, add_json, add_store, given, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="digest (or its beginning), or folder, of a trained run")
    parser.add_argument("directory", metavar="DIR", type=Path)
    parser.add_argument("--family", metavar="TYPE", help="a model_type of transformers (default: the first that fits)")
    parser.add_argument("--adapter", action="store_true", help="the adapter of a run with train.lora, for peft")
    add_store(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate

    found = ablate.export(options.run, options.directory, adapter=options.adapter, **given(options, "family", "store"))
    if options.json:
        print_json(found)
    else:
        what = "an adapter for peft, and in base/ its" if options.adapter else "a"
        print(f"{found['directory']}: {what} {found['model_type']} model of transformers")
    return DONE
