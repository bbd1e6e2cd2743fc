"""Look anything up by the words of papers: settings, model parts, models, studies, claims, commands and pages.

WORDS are one phrase, such as `qk norm`, `sliding window`, `WSD` or `weight tying`. Case, hyphens and plurals do not
matter, and what others call a thing is known.
"""

from __future__ import annotations

import argparse
from itertools import groupby
from textwrap import shorten

from ablate.commands import DONE, OptionError, add_json, print_json, print_table

WIDTH = 90
"""Maximum length of a description, in characters."""
MOST = 6
"""Most that are listed of a kind, without --all."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="+", metavar="WORDS")
    parser.add_argument("--all", action="store_true", help="list everything that was found")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate
    from ablate.wings.find.finding import unsaid

    found = ablate.find(*options.words)
    if options.json:
        print_json(
            [{"kind": each.kind, "name": each.name, "about": each.about, "command": each.command} for each in found]
        )
        return DONE
    phrase = " ".join(options.words)
    absent = " or ".join(map(repr, unsaid(phrase)))
    if not found:
        raise OptionError(f"nothing here is called, or says, {absent or repr(phrase)}")
    if absent:
        print(f"Nothing here says {absent}; found by the other words:")
    kinds = list(dict.fromkeys(each.kind for each in found))  # that of the best first
    for kind, every in groupby(sorted(found, key=lambda each: kinds.index(each.kind)), lambda each: each.kind):
        of = list(every)
        shown = of if options.all else of[:MOST]
        more = f" ({len(of) - len(shown)} more with --all)" if len(shown) < len(of) else ""
        rows = [(each.name, shorten(each.about, WIDTH, placeholder=" …"), each.command) for each in shown]
        print_table([(f"{kind}{more}", "", "shown by"), *rows], text_columns=3)
    return DONE
