"""Render reports again, from the store alone: of one study, of one search, or of a whole store with an index.

PATH is a study's folder in a store, such as runs/studies/norm_placement-cpu, that of a search, such as
runs/searches/search_small_lm-cpu, or a store, such as runs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ablate.commands import add_json, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", type=Path)
    parser.add_argument(
        "--export",
        metavar="DIR",
        type=Path,
        help="write the study's figures as SVG (by an installed Chromium), its tables as Markdown and LaTeX",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    from ablate.cli import InputError
    from ablate.store import StoreError
    from reports.pages.export import ExportError
    from reports.reading.collect import ReportError

    folder = options.path.parent if options.path.is_file() else options.path
    is_store, is_search = (folder / "studies").is_dir(), (folder / "search.json").is_file()
    if not is_store and not is_search and not (folder / "study.json").is_file():
        raise InputError(
            f"{options.path} is no study, search or store: it has no study.json, no search.json and no studies/"
        )
    if options.export and (is_store or is_search):
        example = "STORE/studies/NAME-cpu" if is_search else folder / "studies" / "NAME-cpu"
        what = "search" if is_search else "store"
        raise InputError(f"{options.path} is a {what}: --export takes a study, such as {example}")
    try:
        if options.export:
            _export(folder, options.export, options.json)
        elif is_search:
            _render_search(folder, options.json)
        elif is_store:
            _render_site(folder, options.json)
        else:
            _render(folder, options.json)
    except (ReportError, StoreError, ExportError) as error:
        raise InputError(str(error)) from error
    return 0


def _render(folder: Path, as_json: bool) -> None:
    import reports

    summary = reports.summarise(folder)
    path = reports.render(folder, summary)
    if not as_json:
        print(path)
        return
    print_json({"study": summary.name, "scale": summary.scale, "report": str(path), "arms": summary.arm_documents()})


def _render_search(folder: Path, as_json: bool) -> None:
    import reports

    path = reports.render_search(folder)
    if as_json:
        print_json({"report": str(path)})
    else:
        print(path)


def _render_site(store: Path, as_json: bool) -> None:
    import reports

    path = reports.render_site(store)
    if as_json:
        print_json({"index": str(path)})
    else:
        print(path)


def _export(folder: Path, target: Path, as_json: bool) -> None:
    import reports

    written, left_out = reports.export_study(folder, target)
    if as_json:
        print_json({"written": [str(path) for path in written], "left_out": left_out})
    else:
        print(*written, sep="\n")
    if left_out:
        print("ablate: no Chromium was found, so no figure was drawn: the report's toolbar saves each", file=sys.stderr)
