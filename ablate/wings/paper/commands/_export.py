"""`ablate report --export`: a study's figures and tables as files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ablate.commands import DONE, print_json

OPTION = "--export"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--export",
        metavar="DIR",
        type=Path,
        help="also write figures as SVG (needs Chromium), and tables as Markdown and LaTeX",
    )


def wanted(options: argparse.Namespace) -> bool:
    return options.export is not None


def run(options: argparse.Namespace) -> int:
    import ablate

    found = ablate.export_report(options.path, options.export)
    if options.json:
        print_json({"written": [str(path) for path in found.written], "left_out": found.left_out})
    else:
        print(*found.written, sep="\n")
    if found.left_out:
        print(
            "ablate: no Chromium found, so figures were not exported: each can be saved from the report's toolbar",
            file=sys.stderr,
        )
    return DONE
