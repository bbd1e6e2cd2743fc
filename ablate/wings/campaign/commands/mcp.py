"""Serve plan, judge, compare, result, zoo, claims and studies as tools of the Model Context Protocol, on stdin/stdout.

Clients name studies and files below the working folder only, load no plug-ins, and train for `--max-budget` in total.
A client starts it: {"command": "ablate", "args": ["mcp", "--store", "runs"]}. Needs `pip install 'ablate-lm[mcp]'`.
"""

from __future__ import annotations

import argparse

from ablate.commands import DONE, add_store


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-budget",
        default="1h",
        metavar="TIME",
        help="time that clients' proposals may take in this store, in total (default: 1h)",
    )
    add_store(parser)


def run(options: argparse.Namespace) -> int:
    from ablate.wings.campaign.commands.judge import seconds_of
    from ablate.wings.campaign.tools import tool_server

    tool_server(options.store, seconds_of("max-budget", options.max_budget)).run()
    return DONE
