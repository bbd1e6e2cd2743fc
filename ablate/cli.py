"""The command line. Start-up loads nothing heavy: each command imports what it needs when it runs."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from textwrap import fill
from typing import Any, NoReturn, Protocol, cast

from ablate.commands import BAD_INPUT, COMMANDS, FOLDED, grouped, unfolded
from ablate.training.stop import TO_END, Stopped, as_ctrl_c
from store import AblateError
from store.errors import ArgumentError
from store.extensions import modules_of
from store.terminal import make_writable, visible_streams

UNREAD = 141

EXAMPLES = """examples:
  ablate run studies/norm_placement.yaml                  train, measure, evaluate, report
  ablate run studies/norm_placement.yaml --scale smoke    a minute: shows that everything works
  ablate plan studies/gqa_groups.yaml --on h100           what would run, and what it would cost
  ablate zoo llama3                                       one model, in full

Exit status: 0 done, 1 some runs failed or tasks were skipped (they are named), 2 bad input (nothing is written),
128 + n stopped by signal n, with all state saved."""


class Command(Protocol):
    """A module of `ablate.commands`, here or in a wing. Its docstring is its help."""

    __doc__: str | None

    def configure(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, options: argparse.Namespace) -> int: ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    make_writable()
    with visible_streams():
        return _ended(arguments)


def _ended(arguments: Sequence[str] | None) -> int:
    """Exit status of one command."""
    given = unfolded(list(sys.argv[1:] if arguments is None else arguments))
    options = argparse.Namespace(positional={}, plugin=None)  # plug-ins load before options are parsed
    try:
        try:
            bare = ["status", "--next"] if "status" in COMMANDS else ["--help"]
            options = _parser().parse_args(given or bare)
        finally:  # `--help` exits here
            sys.stdout.flush()
        with _signals_as_ctrl_c(), _plain_warnings():
            status = cast(Command, options.command).run(options)
            sys.stdout.flush()  # inside `try`, as above: a closed pipe is no error
            return status
    except AblateError as error:
        message = _as_given(error, options) if isinstance(error, ArgumentError) else str(error)
        print(f"ablate: {message}" if "\n" not in message else message, file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        _drop_unwritten()
        return UNREAD
    except (OSError, MemoryError, RuntimeError) as error:  # a full disk, a folder that may not be written
        if isinstance(error, RuntimeError) and not str(error).startswith("Symlink loop"):  # OSError from 3.13 on
            from evals.costs.memory import is_out_of_memory  # noqa: PLC0415 (loads torch, whose error this may be)

            if not is_out_of_memory(error):
                raise
            error = MemoryError()
        print(f"ablate: {str(error) or 'out of memory'}", file=sys.stderr)
        _drop_unwritten()
        return BAD_INPUT
    except SystemExit:  # `--help`, which loads nothing heavy
        raise
    except BaseException as error:
        return _otherwise(error)


def _drop_unwritten() -> None:
    """Redirect output that cannot be written to the null device: Python would retry at exit, with a traceback and an
    exit status of its own."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _otherwise(error: BaseException) -> int:
    """Print why a command was stopped, or has no plug-in or tokenizer, and return the exit status; re-raise any other
    error, which is a bug of ours."""
    from zoo.errors import PluginError  # noqa: PLC0415 (start-up is quick)

    if isinstance(error, KeyboardInterrupt):
        print("ablate: stopped. Run the same command again to resume.", file=sys.stderr)
        return 128 + (error.number if isinstance(error, Stopped) else signal.SIGINT)
    if isinstance(error, PluginError):
        print(f"ablate: {error}", file=sys.stderr)
    elif type(error).__name__ == "PanicException":  # Rust's, on an expression that backtracks without end
        print(f"ablate: a tokenizer cannot encode the text: {error}", file=sys.stderr)
    else:
        raise error
    return BAD_INPUT


@contextmanager
def _signals_as_ctrl_c() -> Iterator[None]:
    """Treat signals that end a command as Ctrl-C, on which workers save their state. Ignored signals, such as SIGHUP
    under nohup, stay ignored."""
    in_main = threading.current_thread() is threading.main_thread()  # no other thread can set handlers
    heard = [number for number in TO_END if in_main and signal.getsignal(number) == signal.SIG_DFL]
    for number in heard:
        signal.signal(number, as_ctrl_c)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print our warnings as one line, without their place in the code."""
    usual = warnings.formatwarning

    def line(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> str:
        ours = category.__module__.partition(".")[0] in ("ablate", "zoo")
        return f"ablate: {message}\n" if ours else usual(message, category, *place, **more)

    warnings.formatwarning = line
    try:
        yield
    finally:
        warnings.formatwarning = usual


def _as_given(error: ArgumentError, options: argparse.Namespace) -> str:
    """The error in terms of the command line: an option by its name, a positional argument by its value, or by its
    metavar if it has none. A dotted path, which is a setting, and what the command line lacks stay as they are."""
    if "." in error.argument or not hasattr(options, error.argument):
        return str(error)
    option = error.argument.replace("_", "-")
    if error.argument in options.positional:
        word = getattr(options, error.argument, None)
        known = word if isinstance(word, str) and word else options.positional[error.argument]
        return f"{known if error.value is None else error.value}: {error.reason}"
    return f"{error.named(f'--{option}')}: {error.reason}"


class _Parser(argparse.ArgumentParser):
    command: Command | None = None
    """Command whose options have not been added yet."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Add a command's options only when that command is given, since computing them may be slow. Plug-ins load
        first: options may depend on them. The command's own parser reports unknown arguments."""
        if self.command is not None:
            for wing in modules_of(__name__):
                wing.prepare(args)
            self.command.configure(self)
            self.command = None
        found, unknown = super().parse_known_args(args, namespace)
        if self.prog != "ablate":  # the main parser's only positional argument is the command
            by_place = self._get_positional_actions()
            found.positional = {each.dest: str(each.metavar or each.dest.upper()) for each in by_place}
        if unknown and self.prog != "ablate":
            from zoo.errors import did_you_mean  # noqa: PLC0415 (start-up is quick)

            self.error(f"unknown argument {unknown[0]}{did_you_mean(unknown[0], self._option_string_actions)}")
        return found, unknown

    def _print_message(self, message: str, file: Any = None) -> None:
        """Write, and raise OSError if that fails: argparse would ignore it."""
        if message:
            (file or sys.stderr).write(message)

    def error(self, message: str) -> NoReturn:
        """Print one message, with the nearest command for a mistyped one, and exit."""
        _, _, rest = message.partition("invalid choice: '")
        if rest and self.prog == "ablate":
            from zoo.errors import did_you_mean  # noqa: PLC0415 (start-up is quick)

            word = rest.partition("'")[0]
            near = did_you_mean(word, COMMANDS) or f": one of {', '.join(COMMANDS)}"
            message = f"unknown command '{word}'{near}"
        print(f"{self.prog}: {message} (see `{self.prog} --help`)", file=sys.stderr)
        raise SystemExit(BAD_INPUT)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from ablate.machine.environment import project_version  # noqa: PLC0415 (start-up is quick)

        print(f"ablate {project_version()}")
        parser.exit()


WIDTH = 79
NAMES = 16
"""Width of the help, and of the column of its names, in characters."""


def _said(name: str) -> str:
    """First line of a command's help."""
    return (importlib.import_module(COMMANDS[name]).__doc__ or "").partition("\n")[0]


def _listed() -> str:
    """The commands by group, a line or two for each."""
    lines = []
    for group, names in grouped().items():
        lines.append(f"{group}:")
        for name in names:
            begin = f"    {name}".ljust(NAMES)
            lines.append(fill(_said(name).rstrip("."), WIDTH, initial_indent=begin, subsequent_indent=" " * NAMES))
        lines.append("")
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="ablate",
        usage="ablate [-h] [-V] COMMAND ...",
        description="Train small language models that differ in one choice, and report which is better.",
        epilog=f"{_listed()}\n{EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-V", "--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(prog="ablate", metavar="COMMAND", required=True, help=argparse.SUPPRESS)
    for name, place in COMMANDS.items():
        module = cast(Command, importlib.import_module(place))
        text = module.__doc__ or ""
        folded = [(option, _said(other)) for other, (command, option) in FOLDED.items() if command == name]
        if folded:
            text += "\n\nalso, with options of its own (--help):"
            text += "".join(f"\n  ablate {name} {option} …\n      {said}" for option, said in folded)
        sub = commands.add_parser(name, description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
        sub.set_defaults(command=module)
        for wing in modules_of(__name__):
            wing.configure(sub)
        sub.command = module
    return parser
