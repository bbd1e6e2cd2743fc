"""Serve plan, judge, compare, zoo, claims and studies as tools of the Model Context Protocol, over stdin and stdout.

A client starts it: {"command": "ablate", "args": ["mcp", "--store", "runs"]}. Needs `pip install 'ablate-lm[mcp]'`.
"""

from __future__ import annotations

import argparse

from ablate.commands import DONE, add_store


def configure(parser: argparse.ArgumentParser) -> None:
    add_store(parser)


def run(options: argparse.Namespace) -> int:
    from ablate.wings.campaign.tools import tool_server

    tool_server(options.store).run()
    return DONE
