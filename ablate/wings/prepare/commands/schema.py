"""Print the JSON Schema of study files, for completion and checking in editors.

For example, run ablate new --schema study.schema.json and begin a study in the same folder with
# yaml-language-server: $schema=study.schema.json
(VS Code's YAML extension, Neovim and others read that line). The schema covers every variant and setting of this
installation, plug-ins included.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ablate.commands import DONE


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="write to this file instead of standard output (-)")


def run(options: argparse.Namespace) -> int:
    from ablate.wings.prepare.schema import study_schema

    schema = json.dumps(study_schema(), ensure_ascii=False)  # one line: megabytes, which only editors read
    if options.file in (None, "-"):
        print(schema)
    else:
        Path(options.file).write_text(schema, encoding="utf-8")
        print(options.file)
    return DONE
