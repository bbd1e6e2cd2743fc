"""`ablate zoo --check`: run the conformance checks on a variant, and show their results."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import asdict

from ablate.commands import DONE, SOME_FAILED, OptionError, print_json, print_table
from zoo.conformance.checking import CheckResult, check_variant, checkable, notes_on, options_of
from zoo.conformance.subject import NOT_APPLICABLE
from zoo.errors import did_you_mean

SAID_WIDTH = 100
"""Maximum width of a progress line, in characters: a model with dozens of choices has a long name."""


def show_check(kind: str, as_json: bool, quick: bool) -> int:
    if not options_of(kind):
        near = did_you_mean(kind, checkable()) or ": see `ablate zoo` (a plug-in's? give --plugin FILE)"
        raise OptionError(f"--check {kind}: there is no such part of a model{near}")
    found = check_variant(kind, _say, quick)
    failed = any(finding.failures for finding in found)
    notes = [] if failed else notes_on(kind)
    if as_json:
        checks = [asdict(finding) for finding in found]
        print_json({"variant": kind, "conforms": not failed, "checks": checks, "notes": notes})
    else:
        _print(found)
        for note in notes:
            print(f"note: {note}")
    return SOME_FAILED if failed else DONE


def _print(found: list[CheckResult]) -> None:
    rows = [(each.check, each.property, _verdict(each)) for each in found]
    print_table([("check", "property", "models"), *rows], text_columns=3)
    failed: dict[tuple[str, str], list[str]] = {}
    for each in found:
        if each.failures:  # the first is the simplest model; `--json` has all
            failed.setdefault(each.failures[0], []).append(each.check)
    for (model, reason), checks in failed.items():
        which = checks[0] if len(checks) == 1 else f"these {len(checks)} checks"
        print(f"{which}: {reason}\n    in {model}")
        if len(checks) > 1:
            print(textwrap.indent(textwrap.fill(", ".join(checks), SAID_WIDTH), "    "))


def _say(line: str) -> None:
    print(textwrap.shorten(line, SAID_WIDTH, placeholder=" …"), file=sys.stderr, flush=True)


def _verdict(finding: CheckResult) -> str:
    if not finding.models:
        return NOT_APPLICABLE if finding.tried else "not checked"
    failed = len(finding.failures)
    return f"fails in {failed} of {finding.models}" if failed else f"holds in all {finding.models}"
