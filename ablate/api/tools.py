"""Tools of the Model Context Protocol: each is a command with `--json`, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from ablate.commands import BAD_INPUT
from store.errors import ArgumentError

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

INSTRUCTIONS = """Fair comparisons of small language models. `judge` decides whether a change improves a base: propose
changes of its settings, one at a time, and rely on its decision. `plan` estimates a study's runs and time, `zoo` lists
the parts of models, `claims` what courses and papers claim, `studies` the results of the store."""

Found = dict[str, JsonValue]


def tool_server(store: str | Path = "runs") -> MCPServer:
    """The MCP server; its method `run()` starts it. Raises ArgumentError if the SDK is not installed."""
    try:
        from mcp.server.mcpserver import MCPServer  # noqa: PLC0415 (an extra)
    except ImportError as error:
        reason = "needs the SDK of the Model Context Protocol: pip install 'ablate-lm[mcp]'"
        raise ArgumentError("mcp", reason) from error
    server = MCPServer("ablate", instructions=INSTRUCTIONS)
    place = ["--store", str(store)]

    async def plan(study: str, scale: str | None = None, edits: Sequence[str] = ()) -> Found:
        """List the runs that a study would train, their cost, and the difference that they detect; trains nothing.

        study: the path of a study file, or the name of one that ships. edits: such as `train.lr=1e-3`.
        """
        return await _answer("plan", study, *_given("--scale", scale), *_each("--set", edits), *place)

    async def judge(
        study: str,
        change: Sequence[str],
        scale: str | None = None,
        budget: str = "20m",
        replicate: str | None = None,
        campaign: str | None = None,
    ) -> Found:
        """Decide whether a change improves the base of a study: keep, discard or undecided. Trains for up to `budget`.

        change: edits of the base, such as `block.ffn.activation=relu2`. replicate: a second scale that must confirm it.
        """
        options = {"--scale": scale, "--budget": budget, "--replicate": replicate, "--campaign": campaign}
        given = [word for option, value in options.items() for word in _given(option, value)]
        return await _answer("judge", study, *_each("--change", change), *given, *place)

    async def compare(
        file: str,
        baseline: str | None = None,
        margin: float | None = None,
        metric: str | None = None,
        higher_is_better: bool = False,
    ) -> Found:
        """Judge losses of runs by any trainer: a CSV, parquet or JSON-lines file with columns arm, seed, loss.

        file: its path, or a pattern of logs, such as `logs/{arm}-s{seed}/trainer_state.json`. metric: the name of the
        loss in it. higher_is_better: true for metrics such as accuracy.
        """
        options = {"--baseline": baseline, "--margin": margin, "--metric": metric}
        given = [word for option, value in options.items() for word in _given(option, value)]
        return await _answer("compare", file, *given, *(["--higher-is-better"] if higher_is_better else []))

    async def zoo(name: str | None = None) -> Found:
        """List all parts that a model can be made of, or show one with its settings, defaults and paper."""
        return await _answer("zoo", *([] if name is None else [name]))

    async def claims(words: str = "") -> Found:
        """Find claims of courses and papers about transformers, with their sources and the tests of each claim."""
        return await _answer("claims", *words.split())

    async def studies(words: str = "") -> Found:
        """List the studies of the store with their answers, and those that ship."""
        return await _answer("list", *words.split(), *place)

    for tool in (plan, judge, compare, zoo, claims, studies):
        server.add_tool(tool)
    return server


def _given(option: str, value: object) -> list[str]:
    return [] if value is None else [option, str(value)]


def _each(option: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


async def _answer(*command: str) -> Found:
    """The JSON object that a command prints with `--json`; a list is wrapped under the command's name. Raises ToolError
    with the command's message if it fails."""
    from mcp.server.mcpserver.exceptions import ToolError  # noqa: PLC0415 (an extra)

    words = (sys.executable, "-m", "ablate", *command, "--json")
    process = await asyncio.create_subprocess_exec(*words, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
    try:
        printed, said = await process.communicate()
    finally:
        if process.returncode is None:  # the client has gone, or cancelled the call
            process.terminate()
    if process.returncode == BAD_INPUT or not printed:
        raise ToolError(said.decode().strip() or f"ended with status {process.returncode}")
    found = json.loads(printed)
    return found if isinstance(found, dict) else {command[0]: found}
