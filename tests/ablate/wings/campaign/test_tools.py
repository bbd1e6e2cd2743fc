"""`ablate mcp`: its tools, called by the SDK's own client, give what the commands print with `--json`."""

from __future__ import annotations

import argparse
import asyncio
import csv
import importlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from itertools import cycle, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

import ablate
from ablate.cli import main
from ablate.commands import BAD_INPUT, COMMANDS
from ablate.running.child_process import ENDED_BY_REQUEST
from ablate.wings.campaign import answering, tools
from ablate.wings.campaign.campaign_log import ProposalRecord, log_of
from ablate.wings.campaign.tools import tool_server
from store import Store
from tests.ablate.test_odd_commands import contents
from tests.test_imports import ROOT

mcp = pytest.importorskip("mcp", reason="the SDK of the Model Context Protocol is not installed")
mcp_errors = pytest.importorskip("mcp.server.mcpserver.exceptions")
ToolError, UnexpectedToolError = mcp_errors.ToolError, mcp_errors.UnexpectedToolError


def ended(asked: Coroutine[Any, Any, Any]) -> Any:
    """What it returns. In a thread of its own: a browser that is driven from this one keeps a loop in it."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, asked).result()


def answer(store: Path, ask: Callable[[Any], Awaitable[Any]]) -> Any:
    """Answer to a client."""

    async def asked() -> Any:
        async with mcp.Client(tool_server(store)) as client:
            return await ask(client)

    return ended(asked())


def called(store: Path, tool: str, /, **arguments: Any) -> Any:
    return answer(store, lambda client: client.call_tool(tool, arguments))


def test_its_tools_are_described_with_their_arguments(tmp_path: Path) -> None:
    rows = re.findall(r"^\| `(\w+)` \| (`.*?) \|", (ROOT / "docs/agents.md").read_text(encoding="utf-8"), re.M)
    tools = {tool.name: tool for tool in answer(tmp_path, lambda client: client.list_tools()).tools}
    documented = {name: re.findall(r"`(\w+)`", arguments) for name, arguments in rows}
    assert documented == {name: list(tool.input_schema["properties"]) for name, tool in tools.items()}
    assert all(tool.description for tool in tools.values())


def test_a_stored_result_is_given_by_name(study: Path, tmp_path: Path) -> None:
    run = ["run", str(study), "--store", str(tmp_path), "--engine", "inprocess", "--set", "seeds=1"]
    assert main(run) == 0
    found = called(tmp_path, "result", study=study.stem)
    assert not found.is_error, found.content
    assert [arm["name"] for arm in found.structured_content["arms"]] == ["pre", "post"]
    for name in ("../runs", "/etc", "-h", "--export=x", ""):
        assert refused(called(tmp_path, "result", study=name), "is not the name of a study")
    assert refused(called(tmp_path, "result", study="tinny"), "there is no such study")


def test_losses_are_judged_as_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("losses.csv")
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


@pytest.mark.slow
def test_a_proposal_that_cannot_be_judged_is_an_error_of_one_line(tmp_path: Path) -> None:
    found = called(tmp_path, "judge", study="norm_placement", change="seeds=3", scale="smoke")
    assert found.is_error
    assert "a proposal cannot change seeds: seeds are fresh for every proposal" in found.content[0].text


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a secret, below one with another."""
    (tmp_path / "outside.yaml").write_text("secret: 1", encoding="utf-8")
    here = tmp_path / "here"
    here.mkdir()
    (here / ".env").write_text("secret=1", encoding="utf-8")
    (here / "notes.txt").write_text("secret", encoding="utf-8")
    (here / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    (here / "log").mkdir()
    (here / "log" / "trainer_state.json").symlink_to(tmp_path / "outside.yaml")
    (here / "plugin.py").write_text("open('executed', 'w').close()", encoding="utf-8")
    (here / ".git").mkdir()
    (here / ".git" / "key.json").write_text('{"key": "secret"}', encoding="utf-8")
    monkeypatch.chdir(here)
    return here


def refused(found: Any, *reasons: str) -> bool:
    said = found.content[0].text
    return found.is_error and "secret" not in said and any(reason in said for reason in reasons)


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../outside.yaml", "link.yaml", ".env", ".env.yaml", "notes.txt", "x\0.yaml", "~/x.yaml"],
)
def test_a_study_that_is_no_study_below_the_working_folder_is_refused_unread(path: str, folder: Path) -> None:
    found = called(folder / "runs", "plan", study=path)
    assert refused(found, "below the working folder", "is hidden", "neither a study that ships", "No such file")


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/etc/passwd",
            "../*.csv",
            "../{arm}/{seed}.json",
            ".env",
            "link.yaml",
            "link.yaml#{arm}",
            "-",
            "{arm}.yaml",
            "{arm}/key.json",
        ),
        *("log/{arm}", "l{arm}g", "*/key.json", "{arm}*", "[.]git/config", "{arm}/{seed}.json"),
    ],
)
def test_losses_elsewhere_are_refused_unread(path: str, folder: Path) -> None:
    assert refused(
        called(folder / "runs", "compare", file=path), "below the working folder", "is hidden", "expected a file"
    )


@pytest.mark.parametrize(
    "edit",
    [
        'data={"source": "files", "paths": ["$TOKEN"]}',
        "data.paths=/root/.*/x",
        "base.checkpoint=/root",
        "arms.post.start.checkpoint=../x",
        "data.tokenizer.path=/etc/passwd",
    ],
)
def test_edits_that_name_files_are_refused(edit: str, folder: Path) -> None:
    for tool, arguments in {"plan": {"edits": [edit]}, "judge": {"change": [edit]}}.items():
        assert refused(called(folder / "runs", tool, study="norm_placement", **arguments), "a client cannot set")


@pytest.mark.parametrize(
    "name",
    [
        "--plugin=plugin.py",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("-h", "--check=rmsnorm", "--matrix=p")),
    ],
)
def test_text_of_a_client_is_no_option(name: str, folder: Path) -> None:
    for tool, arguments in {"zoo": {"name": name}, "compare": {"file": name}}.items():
        found = called(folder / "runs", tool, **arguments)
        assert found.is_error and name in found.content[0].text, found
    called(folder / "runs", "claims", words=name)  # -h is a part of words
    assert {path.name for path in folder.iterdir()} == {".env", ".git", "log", "notes.txt", "link.yaml", "plugin.py"}


def options() -> list[str]:
    """Every option of every command."""
    found = {"--plugin"}
    for name, place in COMMANDS.items():
        parser = argparse.ArgumentParser(name)
        importlib.import_module(place).configure(parser)
        found.update(parser._option_string_actions)
    return sorted(found)


ELSEWHERE = (
    *("/etc/passwd", "../outside.yaml", "../outside.csv", "link.yaml", ".env", ".git/key.json", "~/.env", "$HOME/.env"),
    *("../{arm}.csv", "{arm}/key.json", "log/{arm}", "**/**/*", "losses.csv#../{arm}", "file:../outside.csv", "./-"),
    *("/proc/self/environ", "/dev/zero", "plugin.py", "x\0.yaml", "\ud800.yaml", "\x1b[2J", "{arm}" * 40, "[" * 4000),
    *(
        "x=*y",
        "x=[" * 400,
        "seeds=9e99",
        "n_layers=1e18",
        "data.paths=../outside.csv",
        r'base={"ch\u0065ckpoint": ".git"}',
    ),
    *(
        r'arms.post={"d\x61ta.p\u0061ths": ["../outside.csv"]}',
        "9" * 400 + "h",
        "1e999s",
        "post/../../x",
        "",
        " ",
        "\n",
    ),
)
"""Files that a client may not name, and other text that is nothing's name."""
NEEDED = {"study": "norm_placement", "change": "d_model=48", "file": "losses.csv"}
"""What a tool needs beside the argument that is tried."""


@pytest.fixture
def server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A server whose calls are answered in this process, and may not train. In its working folder is one more file that
    may be read, and outside one more that may not."""

    async def here(asked: str) -> tuple[int, bytes, bytes]:
        given = json.loads(asked)
        with redirect_stdout(io.StringIO()) as printed, redirect_stderr(io.StringIO()) as said:
            status = answering.answer(given["command"], given["values"])
        return status, *(each.getvalue().encode(errors="backslashreplace") for each in (printed, said))

    monkeypatch.setattr(tools, "in_a_process", here)
    monkeypatch.setenv("HOME", str(folder.parent))
    losses = "arm,seed,loss\na,0,1.0\na,1,1.1\nb,0,1.2\nb,1,1.25\n"
    (folder / "losses.csv").write_text(losses, encoding="utf-8")
    (folder.parent / "outside.csv").write_text(losses.replace("a,", "secret,"), encoding="utf-8")
    return tool_server(folder / "runs", total_seconds=0.0)


async def tried(server: Any, tool: str, arguments: dict[str, Any]) -> bool:
    """Whether a tool answers; False if it refuses. Anything else kills the call."""
    try:
        await server.call_tool(tool, arguments)
    except UnexpectedToolError as error:
        raise AssertionError((tool, arguments)) from error
    except ToolError as error:
        assert not re.search(r"Traceback|secret", str(error)), (tool, arguments)
        return False
    return True


async def arguments_with_text(server: Any) -> list[tuple[str, str, dict[str, Any]]]:
    """Tool, the name of an argument that takes text, and what the tool needs beside it."""
    found = []
    for tool in await server.list_tools():
        needed = {name: NEEDED[name] for name in tool.input_schema.get("required", ())}
        for name, schema in tool.input_schema["properties"].items():
            if any(each.get("type") == "string" for each in (schema, *schema.get("anyOf", ()))):
                found.append((tool.name, name, needed))
    assert {tool for tool, *_ in found} == {"plan", "judge", "compare", "result", "zoo", "claims", "studies"}
    return found


def test_options_of_every_command_are_text_to_every_tool(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command gets what it gets for a plain word, with the option in the word's place, or nothing. Each tool is given
    each option, in one argument after another: all of them at once are slow, below."""
    reached: list[argparse.Namespace] = []
    for place in COMMANDS.values():
        module = importlib.import_module(place)
        monkeypatch.setattr(module, "run", lambda given: reached.append(given) or BAD_INPUT)

    async def given_for(tool: str, arguments: dict[str, Any]) -> str | None:
        reached.clear()
        assert not await tried(server, tool, arguments)
        return repr(reached[0]) if reached else None

    async def every() -> int:
        count = 0
        for tool, named in groupby(await arguments_with_text(server), key=itemgetter(0)):
            places = [(name, needed, await given_for(tool, {**needed, name: "aWord=1"})) for _, name, needed in named]
            for option, (name, needed, plain) in zip(options(), cycle(places), strict=False):
                found = await given_for(tool, {**needed, name: f"{option}=1"})
                assert found is None or found == plain.replace("aWord", option), (tool, name, option)
                count += found is not None
        return count

    assert ended(every()) > 3 * len(options())


WATCHED: list[tuple[str, Any]] | None = None
"""What is opened and started, while somebody watches: a hook can be added, and not removed."""


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if WATCHED is not None and event in ("open", "os.listdir", "os.scandir", "subprocess.Popen", "os.fork"):
        WATCHED.append((event, arguments[0] if arguments else None))


def forbidden(event: str, what: Any, folder: Path) -> bool:
    """Whether a tool has no business with it: a process, what does not end, or a file of the user's that is not in the
    working folder, or hidden there."""
    if event in ("subprocess.Popen", "os.fork") or not isinstance(what, str | bytes | Path):
        return not isinstance(what, int)  # a descriptor of what was opened before
    path = Path(os.fsdecode(what)).resolve()
    if not path.is_relative_to(folder):
        return str(path) in ELSEWHERE or path.is_relative_to(folder.parent)
    hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    return event == "open" and (hidden or path.name == "plugin.py")


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.filterwarnings("ignore")
def test_no_text_of_a_client_opens_a_file_elsewhere_or_starts_anything(
    server: Any, folder: Path, trained: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Options, options with a file, and files elsewhere, in every argument of every tool, answered in earnest."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    shutil.copytree(trained, folder / "runs")
    texts = [*(f"{option}{end}" for option in options() for end in ("", "=plugin.py")), *ELSEWHERE]
    before = contents(folder.parent)
    sys.addaudithook(watch)

    async def every() -> None:
        for tool, name, needed in await arguments_with_text(server):
            stored = {"study": "tiny"} if tool == "result" else {}
            for text in texts:
                monkeypatch.setattr(sys.modules[__name__], "WATCHED", [])
                await tried(server, tool, {**needed, **stored, name: text})
                found, case = WATCHED or (), (tool, name, text)
                monkeypatch.setattr(sys.modules[__name__], "WATCHED", None)
                assert not [each for each in found if forbidden(*each, folder)], case
                assert contents(folder.parent) == before, case

    ended(every())


def test_all_proposals_end_where_their_time_does(tmp_path: Path) -> None:
    asked = {"study": "norm_placement", "change": ["d_model=48"], "scale": "smoke"}
    found = called(tmp_path, "judge", **asked, budget="100000h")
    assert found.is_error
    assert "all proposals may take 3600 s, of which 3600 s are left" in found.content[0].text
    # Another campaign's proposal, whose call was cancelled after it began: it counts, too.
    begun = ProposalRecord(
        at="2026-01-01T00:00:00+00:00", number=1, name="x", scale="smoke", edits={}, alpha=0.1, base="b", charged=3000.0
    )
    log_of(Store(tmp_path), "other").append([begun])
    found = called(tmp_path, "judge", **asked, budget="20m")
    assert found.is_error
    assert "all proposals may take 3600 s, of which 600 s are left" in found.content[0].text


def test_a_call_ends_with_its_server(tmp_path: Path) -> None:
    """Beside its work, the process waits for the end of standard input."""
    words = [sys.executable, "-P", "-m", "ablate.wings.campaign.answering"]
    asked = {
        "command": "judge",
        "values": {"study": "norm_placement", "change": ["d_model=32"], "store": str(tmp_path)},
    }
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(asked).encode() + b"\n")
        process.stdin.flush()
        time.sleep(1.0)
        process.stdin.close()
        assert process.wait(timeout=60) == ENDED_BY_REQUEST


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    with pytest.raises(ablate.ArgumentError, match=r"pip install 'ablate-lm\[mcp\]'"):
        tool_server(tmp_path)
