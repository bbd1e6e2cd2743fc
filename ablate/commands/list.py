"""List what is there: the studies, searches and runs of a store, and the studies that ship with the tool.

A study has its answer, or how many of its runs have ended. WORDS choose studies by their names and questions.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from ablate.commands import DONE, add_json, add_store, print_json, print_table

WIDTH = 90
"""Characters of an answer or a question."""


STORED = ("name", "scale", "question", "runs", "ended")
"""Columns of a store's studies that are listed."""


class Row(TypedDict, total=False):
    """A study as it is listed."""

    name: str
    scale: str
    question: str
    runs: int
    ended: int
    answer: str


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="WORDS", help="words of a study's name or question")
    parser.add_argument("--shipped", action="store_true", help="list the studies that ship with the tool alone")
    add_store(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    stored = [] if options.shipped else [row for row in _stored(options.store) if _wanted(row, options.words)]
    shipped = [row for row in _shipped() if _wanted(row, options.words)]
    if options.json:
        print_json({"stored": stored, "shipped": shipped})
        return DONE
    if stored:
        print_table([("study", "scale", "runs", "answer"), *map(_stored_row, stored)])
    if options.shipped or options.words or not stored:
        print_table([("shipped study", "question"), *((row["name"], _short(row["question"])) for row in shipped)])
        print("`ablate plan NAME` says what one takes, `ablate run NAME` runs it, `ablate new NAME` begins your own.")
    return DONE


def _stored(store: str) -> Iterator[Row]:
    """The studies of a store, which need not exist yet."""
    import ablate

    if not Path(store).is_dir():
        return
    found = ablate.open(store)
    for name, scale, question, runs, ended in found.studies.select(STORED).iter_rows():
        answer = found.result(name, scale).headline if ended else ""
        yield {"name": name, "scale": scale, "question": question, "runs": runs, "ended": ended, "answer": answer}


def _shipped() -> Iterator[Row]:
    from ablate.study.written import read_study, shipped

    for name in shipped():
        yield {"name": name, "question": read_study(name).document.data["question"]}


def _wanted(row: Row, words: list[str]) -> bool:
    text = f"{row['name']} {row['question']}".lower()
    return all(word.lower() in text for word in words)


def _stored_row(row: Row) -> tuple[str, ...]:
    return row["name"], row["scale"], f"{row['ended']}/{row['runs']}", _short(row["answer"])


def _short(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1].rsplit(' ', 1)[0]} …"
