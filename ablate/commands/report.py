"""Render reports again, from the store alone: of one study, or of a whole store with an index.

PATH is a study's folder in a store, such as runs/studies/norm_placement-cpu, or a store, such as runs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ablate.commands import add_json, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", type=Path)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import reports
    from ablate.cli import InputError
    from ablate.store import StoreError
    from reports.collect import ReportError

    folder = options.path.parent if options.path.is_file() else options.path
    if (folder / "studies").is_dir():
        path = reports.render_site(folder)
        print_json({"index": str(path)}) if options.json else print(path)
        return 0
    if not (folder / "study.json").is_file():
        raise InputError(
            f"{options.path} is neither the folder of a study nor a store: it has no study.json or studies/"
        )
    try:
        path = reports.render(folder)
        if options.json:
            summary = reports.summarise(folder)
            arms = summary.arm_documents()
            print_json({"study": summary.name, "scale": summary.scale, "report": str(path), "arms": arms})
        else:
            print(path)
    except (ReportError, StoreError) as error:
        raise InputError(str(error)) from error
    return 0
