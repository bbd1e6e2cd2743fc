"""`ablate mcp`: its tools, called by the SDK's own client, give what the commands print with `--json`."""

from __future__ import annotations

import asyncio
import csv
import json
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import ablate
from ablate.cli import main
from ablate.wings.campaign.tools import tool_server

mcp = pytest.importorskip("mcp", reason="the SDK of the Model Context Protocol is not installed")


def answer(store: Path, ask: Callable[[Any], Awaitable[Any]]) -> Any:
    """Answer to a client. In a thread of its own: a browser that is driven from this one keeps a loop in it."""

    async def asked() -> Any:
        async with mcp.Client(tool_server(store)) as client:
            return await ask(client)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(asked())).result()


def called(store: Path, name: str, **arguments: Any) -> Any:
    return answer(store, lambda client: client.call_tool(name, arguments))


def test_its_tools_are_described(tmp_path: Path) -> None:
    tools = {tool.name: tool for tool in answer(tmp_path, lambda client: client.list_tools()).tools}
    assert set(tools) == {"plan", "judge", "compare", "zoo", "claims", "studies"}
    assert all(tool.description for tool in tools.values())


def test_losses_are_judged_as_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "losses.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [
                ["arm", "seed", "loss"],
                *(["pre", i, 4.1 + i / 100] for i in range(4)),
                *(["post", i, 4.3 + i / 90] for i in range(4)),
            ]
        )
    found = called(tmp_path, "compare", file=str(path), baseline="pre")
    assert main(["compare", str(path), "--baseline", "pre", "--json"]) == 0
    assert not found.is_error
    assert found.structured_content == json.loads(capsys.readouterr().out)
    assert found.structured_content["contrasts"][0]["verdict"] == "worse"
    scores = called(tmp_path, "compare", file=str(path), baseline="pre", higher_is_better=True)
    assert scores.structured_content["contrasts"][0]["verdict"] == "better"


def test_a_proposal_that_cannot_be_judged_is_an_error_of_one_line(tmp_path: Path) -> None:
    found = called(tmp_path, "judge", study="norm_placement", change=["seeds=3"], scale="smoke")
    assert found.is_error
    assert "a proposal cannot change seeds: seeds are fresh for every proposal" in found.content[0].text


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    with pytest.raises(ablate.ArgumentError, match=r"pip install 'ablate-lm\[mcp\]'"):
        tool_server(tmp_path)
