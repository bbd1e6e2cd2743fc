"""Write a commented starter study that runs as is.

NAME is a name or a path: ablate new gated_ffn writes gated_ffn.yaml. With the schema of --schema, editors complete and
check it.
"""

from __future__ import annotations

import argparse
import shlex

from ablate.commands import DONE, suggested


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the study, or path of its file")


def run(options: argparse.Namespace) -> int:
    import ablate

    path = ablate.new(options.name)
    print(f"{path}\ntry it: {suggested(f'ablate run {shlex.quote(str(path))} --scale smoke', options)}")
    return DONE
