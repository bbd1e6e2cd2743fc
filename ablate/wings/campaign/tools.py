"""Tools of the Model Context Protocol: each gives the document of a command, made in a process of its own."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from ablate.commands import BAD_INPUT
from ablate.study.complaints import StudyError
from ablate.study.layers import setting_layer
from ablate.study.written import shipped
from store.errors import ArgumentError
from store.paths import NAME

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

INSTRUCTIONS = """Fair comparisons of small language models. `judge` decides whether a change improves a base: propose
changes of its settings, one at a time, and rely on its decision. `plan` estimates a study's runs and time, `zoo` lists
the parts of models, `claims` what courses and papers claim, `studies` lists the store, `result` gives a study's
verdicts."""

Found = dict[str, JsonValue]
TOTAL_SECONDS = 3600.0
SUFFIXES = (".yaml", ".yml")
NAMES_FILES = re.compile(
    r"\b(data|tokenizer|checkpoint|start|teacher|paths?|tasks?|include|evals|scales)\b|\$|~/|\.\./"
)
"""Settings that name files, and what stands for a folder."""


def tool_server(store: str | Path = "runs", total_seconds: float = TOTAL_SECONDS) -> MCPServer:
    """The MCP server; its method `run()` starts it. Raises ArgumentError if the SDK is not installed.

    A client names files below the working folder only, and no hidden ones. total_seconds: the time that all proposals
    of clients may take together, in all campaigns of the store.
    """
    try:
        from mcp.server.mcpserver import MCPServer  # noqa: PLC0415 (an extra)
    except ImportError as error:
        reason = "needs the SDK of the Model Context Protocol: pip install 'ablate-lm[mcp]'"
        raise ArgumentError("mcp", reason) from error
    server = MCPServer("ablate", instructions=INSTRUCTIONS)
    place = str(store)

    async def plan(study: str, scale: str | None = None, edits: Sequence[str] | str = ()) -> Found:
        """List the runs that a study would train, their cost, and the difference that they detect; trains nothing.

        study: the path of a study file, or the name of one that ships. edits: such as `train.lr=1e-3`.
        """
        return await _answer("plan", study=_study(study), scale=scale, sets=_edits(edits), store=place)

    async def judge(
        study: str,
        change: Sequence[str] | str,
        scale: str | None = None,
        budget: str = "20m",
        replicate: str | None = None,
        campaign: str | None = None,
    ) -> Found:
        """Decide whether a change improves the base of a study: keep, discard or undecided. Trains for up to `budget`.

        change: an edit of the base, such as `block.ffn.kind=mlp`, or several. replicate: a second scale that must
            confirm it.
        """
        return await _answer(
            "judge",
            study=_study(study),
            change=_edits(change),
            scale=scale,
            budget=budget,
            replicate=replicate,
            campaign=campaign,
            total_budget=f"{total_seconds:.0f}s",
            store=place,
        )

    async def compare(
        file: str,
        baseline: str | None = None,
        margin: float | None = None,
        metric: str | None = None,
        higher_is_better: bool = False,
    ) -> Found:
        """Judge losses of runs by any trainer: a CSV, parquet or JSON-lines file with columns arm, seed, loss.

        file: its path, or a pattern of logs, such as `logs/{arm}-s{seed}/trainer_state.json`. With columns size (or
        params), flops and tokens, of several sizes, effective compute is judged too. metric: the name of the loss in
        it. higher_is_better: true for metrics such as accuracy.
        """
        _below_here("file", file.rpartition("#")[0] or file)  # `charts.csv#{arm}` names runs in charts.csv
        return await _answer(
            "compare",
            losses=_below_here("file", file),
            baseline=baseline,
            margin=margin,
            metric=metric,
            higher_is_better=higher_is_better,
        )

    async def result(study: str, scale: str | None = None) -> Found:
        """Give the verdicts of a study in the store: each arm's loss, difference, interval, costs and claims.

        study: its name, as `studies` lists it. scale: needed if it was run at several.
        """
        if not NAME.fullmatch(study):
            raise _refusal(f"study: {study!r} is not the name of a study")
        return await _answer("report", path=study, scale=scale, store=place)

    async def zoo(name: str | None = None) -> Found:
        """List all parts that a model can be made of, or show one with its settings, defaults and paper."""
        return await _answer("zoo", name=[name] if name else [])

    async def claims(words: str = "") -> Found:
        """Find claims of courses and papers about transformers, with their sources and the tests of each claim."""
        return await _answer("claims", words=words.split())

    async def studies(words: str = "") -> Found:
        """List the studies of the store with their answers, and those that ship."""
        return await _answer("list", words=words.split(), store=place)

    for tool in (plan, judge, compare, result, zoo, claims, studies):
        server.add_tool(tool)
    return server


def _study(name: str) -> str:
    """A study's name, or the path of a study file. Raises ToolError for any other file: errors about a study quote
    it."""
    if name in shipped():
        return name
    if Path(name).suffix not in SUFFIXES:
        raise _refusal(f"study: {name!r} is neither a study that ships nor a {' or '.join(SUFFIXES)} file")
    return _below_here("study", name)


def _below_here(argument: str, path: str) -> str:
    """A path, or a pattern of paths, that names only files below the working folder, after links, and none that is
    hidden. Raises ToolError for any other."""
    if path.count("**") > 1:  # each multiplies the time of the search by the number of folders
        raise _refusal(f"{argument}: {path!r} has more than one **")
    here = Path.cwd().resolve()
    try:
        named = Path(path).resolve().relative_to(here)
        every = here.glob(re.sub(r"\{(arm|seed|size)\}", "*", str(named))) if set("{*?[") & set(path) else ()
        found = [named, *(each.relative_to(here) for each in every)]
        # Of a folder, a log in it is read, or one in a folder of it.
        links = [
            link for each in found for below in ("*", "*/*") for link in (here / each).glob(below) if link.is_symlink()
        ]
        found += [path.resolve().relative_to(here) for path in (*map(here.joinpath, found), *links)]
    except (ValueError, OSError, RuntimeError):  # elsewhere; not a path; links in a circle
        raise _refusal(f"{argument}: {path!r} is not below the working folder") from None
    if path == "-" or any(part.startswith(".") for each in found for part in each.parts):
        raise _refusal(f"{argument}: {path!r} is hidden, or names what is")
    return path


def _edits(edits: Sequence[str] | str) -> list[str]:
    """Edits of a study that name no file: one could be read, and quoted in an error. Raises ToolError."""
    edits = [edits] if isinstance(edits, str) else list(edits)
    for edit in edits:
        try:  # as YAML has it, in which `d\u0061ta` can be written for `data`
            read = json.dumps(setting_layer(edit).written, default=str)
        except StudyError as error:
            raise _refusal(str(error)) from None
        if found := NAMES_FILES.search(read):
            raise _refusal(f"{edit!r}: a client cannot set {found[0]}: write it into the study's file")
    return edits


def _refusal(message: str) -> Exception:
    from mcp.server.mcpserver.exceptions import ToolError  # noqa: PLC0415 (an extra)

    error: Exception = ToolError(message)
    return error


async def _answer(command: str, **values: object) -> Found:
    """The JSON object that a command prints with `--json`; a list is wrapped under the command's name. Raises ToolError
    with the command's message if it fails."""
    status, printed, said = await in_a_process(json.dumps({"command": command, "values": values}))
    if status == BAD_INPUT or not printed:
        raise _refusal(said.decode().strip() or f"ended with status {status}")
    found = json.loads(printed)
    return found if isinstance(found, dict) else {command: found}


async def in_a_process(asked: str) -> tuple[int | None, bytes, bytes]:
    """Exit status, standard output and standard error of a process that answers one call."""
    words = (sys.executable, "-P", "-m", "ablate.wings.campaign.answering")
    process = await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    try:
        # Standard input stays open until the end: the process ends with this one.
        process.stdin.write(asked.encode() + b"\n")
        printed, said = await asyncio.gather(process.stdout.read(), process.stderr.read())
        await process.wait()
    finally:
        if process.returncode is None:  # the client has gone, or cancelled the call
            process.terminate()
        process.stdin.close()
    return process.returncode, printed, said
