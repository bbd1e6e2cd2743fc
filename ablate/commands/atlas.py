"""Write the atlas: a static site with a card for each claim, a page for each variant, and the published models.

SOURCE is a store such as runs, a folder of results that `ablate report --record` wrote, or one such file. Without any,
the atlas has the results that ship with the project. Claims of shipped studies without a result have cards, too.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ablate.commands import DONE, add_json, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sources", nargs="*", metavar="SOURCE", type=Path)
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path("atlas"), help="its folder (default: atlas/)")
    parser.add_argument(
        "--findings", metavar="FILE", type=Path, help="also write a summary of at most 1,500 words as Markdown"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate

    page = ablate.atlas(options.sources, out=options.out, findings=options.findings)
    if options.json:
        print_json({"index": str(page), "findings": str(options.findings) if options.findings else None})
    else:
        print(page, *([options.findings] if options.findings else []), sep="\n")
    return DONE
