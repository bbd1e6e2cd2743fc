"""Print the JSON Schema of study files, so that an editor completes and checks them as you type.

For example: ablate schema study.schema.json, and as the first line of a study that lies beside it
# yaml-language-server: $schema=study.schema.json
(VS Code's YAML extension, Neovim and others read that line). Every variant and setting of this installation is in it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ablate.commands import DONE, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="write it there")


def run(options: argparse.Namespace) -> int:
    from ablate.study.schema import study_schema

    if options.file is None:
        print_json(study_schema())
    else:
        Path(options.file).write_text(json.dumps(study_schema(), ensure_ascii=False), encoding="utf-8")
        print(options.file)
    return DONE
