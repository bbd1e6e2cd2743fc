"""One call of a tool, in a process of its own: `python -m ablate.wings.campaign.answering`.

A line of JSON on standard input names a command of `ablate` and the values of its options; the command prints its
document. Values are never parsed as words of a command line, so a client's text is data whatever it looks like. The
server holds standard input open: the process, and all that it has started, end with the server.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys

from ablate.commands import BAD_INPUT, COMMANDS
from ablate.running.child_process import end_with_parent
from store.errors import AblateError, reason_of


def answer(command: str, values: dict[str, object]) -> int:
    """Run a command with these values, and the defaults of its other options. Returns its exit status."""
    module = importlib.import_module(COMMANDS[command])
    parser = argparse.ArgumentParser(command)
    module.configure(parser)
    options = {action.dest: action.default for action in parser._actions if action.dest != argparse.SUPPRESS}
    if unknown := values.keys() - options.keys():
        raise TypeError(f"{command} has no {', '.join(sorted(unknown))}")
    kinds = {action.dest: action.type for action in parser._actions if callable(action.type)}
    values = {
        name: kinds[name](given) if name in kinds and type(given) is str else given for name, given in values.items()
    }
    given = argparse.Namespace(**{**options, "plugin": None, **values, "json": True})
    try:
        status: int = module.run(given)
        return status
    except AblateError as error:
        print(error, file=sys.stderr)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        print(f"{place}{reason_of(error)}", file=sys.stderr)
    return BAD_INPUT


def main() -> int:
    asked = json.loads(sys.stdin.buffer.readline())
    end_with_parent()
    return answer(asked["command"], asked["values"])


if __name__ == "__main__":
    raise SystemExit(main())
