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
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=Path("atlas"), help="output folder (default: atlas/)"
    )
    parser.add_argument(
        "--findings", metavar="FILE", type=Path, help="also write a summary of at most 1,500 words as Markdown"
    )
    parser.add_argument(
        "--tables", metavar="FILE", type=Path, help="also write the tables of results between a Markdown file's markers"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate

    page = ablate.atlas(options.sources, out=options.out, findings=options.findings, tables=options.tables)
    written = {"index": page, "findings": options.findings, "tables": options.tables}
    if options.json:
        print_json({name: str(path) if path else None for name, path in written.items()})
    else:
        print(*filter(None, written.values()), sep="\n")
    return DONE
