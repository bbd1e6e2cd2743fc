"""Re-render a report from the store: a study, a search, or a whole store with an index.

STUDY is a name, such as norm_placement, the path of its file, or a folder: of a study, such as
runs/studies/norm_placement-cpu, of a search, or of a whole store, such as runs (default: the store).
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.commands import DONE, OptionError, add_json, add_store, print_json
from store.extensions import modules_of

if TYPE_CHECKING:
    from store.documents import JsonObject


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", metavar="STUDY", nargs="?", type=Path, help="name or file of a study, or a folder (default: the store)"
    )
    parser.add_argument("--scale", help="the study's scale, if the store has it at several")
    add_store(parser)
    for each in modules_of(__name__):
        each.configure(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate
    from ablate.api.reporting import reported

    others = [each for each in modules_of(__name__) if each.wanted(options)]
    if len(others) > 1:
        raise OptionError(" cannot be combined with ".join(each.OPTION for each in others))
    if options.path is None and not Path(options.store).exists():
        raise OptionError(f"there is no store {options.store}/ yet: `ablate run STUDY` creates one")
    options.path = options.path or Path(options.store)
    if not options.path.exists() or options.path.is_file():
        options.path = _folder_of(options)
    for each in others:
        return int(each.run(options))
    folder, kind = reported(options.path)
    # A reader without write access to the store still gets the numbers.
    reads_only = options.json and not os.access(folder, os.W_OK)
    if not reads_only:
        page = ablate.report(options.path)
    else:
        from store import Store, StudyFolder

        page = Store(folder).index_path if kind == "store" else StudyFolder(folder).report_path
    if options.json:
        print_json(_document(folder, kind, page))
    else:
        print(page)
    return DONE


def _folder_of(options: argparse.Namespace) -> Path:
    """The folder of the study with this name or file; a file that is no study, such as its page, stays as it is."""
    from ablate.api.named import named_folder

    if options.path.is_file() and options.path.suffix not in (".yaml", ".yml"):
        return Path(options.path)
    return named_folder(options.path, options.scale, options.store)


def _document(folder: Path, kind: str, page: Path) -> JsonObject:
    import ablate

    if kind != "study":
        return {"index" if kind == "store" else "report": str(page)}
    return ablate.StudyResult.stored(folder).document()
