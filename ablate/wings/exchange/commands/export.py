"""Write the model of a trained run as a transformers checkpoint, with its tokenizer and a model card.

RUN is a digest (or the beginning of one) in the store, STUDY/ARM or STUDY/ARM/SEED (by default the first seed), the
folder of a run, or the name of an imported model. DIR can then be loaded with AutoModelForCausalLM.from_pretrained and
AutoTokenizer.from_pretrained, or by lm-eval with --model hf. If transformers does not have the architecture, DIR has a
modeling file that imports this package: load it with trust_remote_code=True where ablate is installed. `ablate plan`
says which of the two applies. Needs transformers and, for adapters, peft.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ablate.commands import DONE, add_json, add_store, given, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="digest, STUDY/ARM or folder of a trained run")
    parser.add_argument("directory", metavar="DIR", type=Path)
    parser.add_argument("--family", metavar="TYPE", help="a model_type of transformers (default: the first that fits)")
    parser.add_argument("--adapter", action="store_true", help="write the adapter of a run with train.lora, for peft")
    parser.add_argument(
        "--push",
        metavar="USER/NAME",
        help="upload DIR to this repository of the Hugging Face hub; a new one is private",
    )
    add_store(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate

    found = ablate.export(options.run, options.directory, **given(options, "family", "adapter", "push", "store"))
    if options.json:
        print_json(found)
    else:
        print(f"{found['directory']}: {_said(found, options.adapter)}")
    return DONE


def _said(found: dict[str, str], adapter: bool) -> str:
    what = "an adapter for peft, and its base in base/: a" if adapter else "a"
    if found["model_type"] != "ablate":
        return f"{what} {found['model_type']} model of transformers"
    reason = f" ({found['reason']})" if "reason" in found else ""
    return f"{what} model with ablate's own modeling file: load it with trust_remote_code=True{reason}"
