"""Show a store's studies in a browser, live while they run.

Pages are served to this machine only, and reload while a study is running.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ablate.commands import OptionError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", metavar="STORE", nargs="?", default=Path("runs"), type=Path, help="default: runs/")
    parser.add_argument("--port", type=int, default=8000, help="default: 8000; 0 picks a free one")


def run(options: argparse.Namespace) -> int:
    from ablate.wings.serve.server import server

    if not options.store.is_dir():
        raise OptionError(f"{options.store} is not a folder")
    try:
        serving = server(options.store, options.port)
    except (OSError, OverflowError) as error:
        raise OptionError(f"port {options.port}: {error}") from error
    with serving:
        print(f"http://localhost:{serving.server_port}/ (Ctrl-C stops it)", flush=True)
        try:
            serving.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0
