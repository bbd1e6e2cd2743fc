"""The commands: one module each, light to import, with `configure(parser)` and `run(options) -> exit status`."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ablate import wings
from store import DEFAULT_STORE, AblateError

if TYPE_CHECKING:
    from rich.table import Table

OF_THE_CORE = ("run", "plan", "report")
COMMANDS = {name: f"{__name__}.{name}" for name in OF_THE_CORE} | wings.commands()
"""Module of each command."""
GROUPS = {"ask": ("plan",), "run": ("run",), "look": ("report",), "share": (), "models": ()}
"""Commands of the core by what they are for, in the order of the help. Wings say which group theirs belong to."""
FOLDED = wings.folded()
"""Commands that the help does not list: the option of another command that does the same."""


def grouped() -> dict[str, list[str]]:
    """Commands that the help lists, by group."""
    own = {name: group for group, names in GROUPS.items() for name in names} | wings.groups()
    found: dict[str, list[str]] = {group: [] for group in GROUPS}
    order = {name: place for names in GROUPS.values() for place, name in enumerate(names)}
    for name in sorted(COMMANDS, key=lambda name: order.get(name, len(COMMANDS))):  # those of wings come last
        if name not in FOLDED:
            found[own[name]].append(name)
    return found


def unfolded(words: Sequence[str]) -> list[str]:
    """A command line with an option of `FOLDED` as the command that does the same: `list --running` → `status`."""
    for name, (command, option) in FOLDED.items():
        if words[:1] == [command] and option in words:
            place = words.index(option)
            return [name, *words[1:place], *words[place + 1 :]]
    return [*words]  # `list` here is the command


PIPE_WIDTH = 200
"""Maximum width of tables, in characters, if the output is no terminal."""

DIGITS = 18
"""Most digits of a whole number on the command line: it fits in 64 bits."""

DONE, SOME_FAILED, BAD_INPUT = 0, 1, 2
"""Exit statuses."""

Keywords = dict[str, Any]
"""Keyword arguments by name, for argparse or for functions of `ablate`."""

HERE = ("cpu", "cuda")
"""Devices that runs can use."""


class OptionError(AblateError):
    """Options that conflict, have no effect or are malformed. The text is the complete message."""


def suggested(command: str, options: argparse.Namespace) -> str:
    """A command to suggest, with the store and plug-ins of the current command."""
    from store.documents.shell import plugin_options, store_option

    store = store_option(Path(getattr(options, "store", DEFAULT_STORE)))
    return " ".join(filter(None, (command, store, plugin_options(getattr(options, "plugin", None) or ()))))


def add_study(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for a study, its scale and edits, and the store."""
    parser.add_argument("study", metavar="STUDY", help="name of a shipped study, or the path of a file")
    parser.add_argument(
        "--scale", help="a scale of the study (default: on a GPU gpu-hour, or the study's own; else cpu)"
    )
    parser.add_argument(
        "--set",
        dest="sets",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="edit the study, e.g. --set train.lr=1e-3 --set seeds=auto (may be repeated)",
    )
    add_store(parser)


def add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", default=DEFAULT_STORE, metavar="DIR", help=f"the store (default: {DEFAULT_STORE}/)")


def add_allow_code(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-code",
        action="store_true",
        help="allow the study's lm-eval task files to run code, now and later, until they change",
    )


def add_run_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add options of execution: those named, or else all of `ablate.run`."""
    from ablate.running.options import Options, RunOptions, described

    for name in names or RunOptions.__annotations__:
        flag = "--" + name.replace("_", "-")
        help_text = described(name).replace("`", "").replace("%", "%%")
        if name == "engine_settings":
            sbatch = (
                "an option of sbatch, for --engine slurm: --slurm partition=gpu --slurm time=4:00:00 (may be repeated)"
            )
            parser.add_argument("--slurm", action="append", default=[], metavar="OPTION=VALUE", help=sbatch)
            address = "for --engine ray: address of a cluster (default: $RAY_ADDRESS, or one on this machine)"
            parser.add_argument("--address", help=address)
        elif Options.model_fields[name].annotation is bool:
            parser.add_argument(flag, action="store_true", help=help_text)
        else:
            parser.add_argument(flag, default=Options.model_fields[name].default, help=help_text, **_HOW[name])


def given_run_options(options: argparse.Namespace) -> Keywords:
    """Values of the options of `add_study` and `add_run_options`, as keyword arguments for a function of `ablate`."""
    from ablate.running.options import RunOptions

    names = RunOptions.__annotations__.keys() - {"engine_settings"}
    settings = engine_settings(options)
    return {**given(options, "scale", "sets", "store", *names), "engine_settings": settings}


def engine_settings(options: argparse.Namespace) -> dict[str, str]:
    """The settings of the chosen engine. Raises OptionError if they belong to another engine or are malformed."""
    own = {"slurm": options.slurm, "ray": options.address}
    if misplaced := next((name for name, value in own.items() if value and name != options.engine), None):
        option = "--address" if misplaced == "ray" else "--slurm"
        raise OptionError(f"{option} is for --engine {misplaced}, not for --engine {options.engine}")
    if wrong := next((text for text in options.slurm if "=" not in text), None):
        raise OptionError(f"--slurm {wrong}: expected OPTION=VALUE")
    address = {"address": options.address} if options.address else {}
    return address | dict(text.split("=", 1) for text in options.slurm)


def positive(text: str) -> int:
    """Parse an argument that is a whole number from 1, of at most 64 bits."""
    if not text.isdecimal() or int(text[:DIGITS]) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1")
    if len(text) > DIGITS:
        raise argparse.ArgumentTypeError(f"'{text[:DIGITS]}…' has more than {DIGITS} digits")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a time in seconds")
    return value


_N: Keywords = {"type": positive, "metavar": "N"}
_S: Keywords = {"type": _seconds, "metavar": "S"}
_HOW: dict[str, Keywords] = {
    "device": {"choices": HERE},
    "engine": {"metavar": "NAME"},
    "workers": _N,
    "workers_per_gpu": _N,
    "devices": _N,
    "microbatch": {"type": lambda text: text if text == "auto" else positive(text), "metavar": "N|auto"},
    "checkpoint_seconds": _S,
    "stall_timeout": _S,
}
"""argparse's arguments for each option that takes a value."""


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document on standard output")


def given(options: argparse.Namespace, *names: str) -> Keywords:
    """Values of options by name, as keyword arguments for a function of `ablate`."""
    return {name: getattr(options, name) for name in names}


def print_json(document: Any) -> None:
    """Print a document; in another encoding than UTF-8, which may lack characters, as ASCII."""
    is_utf = (sys.stdout.encoding or "utf-8").casefold().startswith("utf")
    print(json.dumps(document, indent=1, ensure_ascii=not is_utf, allow_nan=False))


def print_line(line: str) -> None:
    """Print a line, cut at the width of a terminal; a pipe gets all of it."""
    import shutil

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else len(line)
    print(line if len(line) <= width else f"{line[: width - 1]}…")


def print_prose(lines: Iterable[str]) -> None:
    """Print lines, wrapped between words at the width of a terminal; a pipe gets them unwrapped."""
    import shutil
    import textwrap

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in lines:
        print(line if width is None else textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False))


def print_table(rows: Sequence[Sequence[str]], text_columns: int = 1) -> None:
    """Print rows of text, the header first. The first `text_columns` columns are left-aligned, the others right.

    A table with one column of text that is wider than the terminal is transposed.
    """
    from rich.console import Console

    from store.terminal import raw

    console = Console(file=raw(sys.stdout), width=None if sys.stdout.isatty() else PIPE_WIDTH)
    table = _table(rows, text_columns)
    unbounded = console.options.update(max_width=10 * PIPE_WIDTH)
    if text_columns == 1 and console.measure(table, options=unbounded).maximum > console.width:
        table = _table([*zip(*rows, strict=True)], text_columns)
    with console.capture() as shown:
        console.print(table)
    raw(sys.stdout).write(shown.get())  # Rich would exit with 1 from a closed pipe


def _table(rows: Sequence[Sequence[str]], text_columns: int) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from store.terminal import visible

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, title in enumerate(rows[0]):
        justify: Literal["left", "right"] = "left" if number < text_columns else "right"
        table.add_column(Text(visible(title)), justify=justify, overflow="fold")
    for row in rows[1:]:
        table.add_row(*(Text(visible(cell)) for cell in row))
    return table
