"""List what papers claim about transformers, and the study or command that tests each claim.

WORDS are searched for in the handbook's claims, sources and topics, as one phrase or else all of them; an id shows that
claim. Without WORDS, topics are listed with their numbers of claims. Claims of a study refer to those here by id.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import groupby
from textwrap import fill
from typing import TYPE_CHECKING, get_args

from ablate.commands import DONE, OptionError, add_json, print_json, print_table

if TYPE_CHECKING:
    from ablate.wings.science.handbook import HandbookClaim

WIDTH = 80
INDENT = 13
"""Width of the labels in a claim's entry, in characters."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="WORDS",
        help="words, or phrases in quotes: rope, disputed, 'must tie', 'tested by nothing'",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate

    words = options.words
    found = ablate.claims(*words)
    if not found:
        from zoo.errors import did_you_mean

        said = " ".join(words)
        near = did_you_mean(said, (each.id for each in ablate.claims()))
        raise OptionError(f"no claim contains {said}{near or f'; `ablate find {said}` searches everything else'}")
    if options.json:
        own = [{"answer": each.answer, "commands": list(each.commands)} for each in found]
        print_json([{**each.model_dump(mode="json"), **more} for each, more in zip(found, own, strict=True)])
    elif words:
        print("\n\n".join("\n".join(_lines(each)) for each in found))
        print(f"\n{len(found)} of {len(ablate.claims())} claims")
    else:
        from ablate.wings.science.handbook import Answer

        titles = get_args(Answer)
        rows = [("all", found), *((topic, tuple(each)) for topic, each in groupby(found, lambda entry: entry.topic))]
        counted = [
            (name, str(len(each)), *(str(sum(entry.answer == title for entry in each)) for title in titles))
            for name, each in rows
        ]
        print_table([("topic", "claims", *(title.split()[0] for title in titles)), *counted[1:], counted[0]])
        print("`ablate claims rope disputed` shows the claims that contain both words.")
    return DONE


def _lines(entry: HandbookClaim) -> Iterator[str]:
    yield fill(f"{entry.id}: {entry.claim}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    unchecked = " (quoted from memory)" if entry.unchecked else ""
    commands = dict(zip(entry.commands, ("test", *[""] * len(entry.commands)), strict=False))
    said = [
        ("topic", entry.topic),
        ("figure", f"{entry.figure}{unchecked}" if entry.figure else None),
        ("source", entry.source),
        ("where", entry.where),
        ("sizes", " and ".join(f"{size / 1e6:,g} M parameters" for size in entry.sizes)),
        ("literature", f"{entry.standing}: {entry.evidence}" if entry.evidence else entry.standing),
        ("small", entry.grade),
        *((label, command) for command, label in commands.items()),
        ("open", entry.open),
        ("planned", entry.planned),
        ("no test", entry.why_not),
    ]
    for label, text in said:
        if text:
            start = f"  {label:<{INDENT - 2}}"
            yield fill(
                text,
                WIDTH,
                initial_indent=start,
                subsequent_indent=" " * INDENT,
                break_long_words=False,
                break_on_hyphens=False,
            )
