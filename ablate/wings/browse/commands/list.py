"""List the studies of a store, and those that ship with the tool: answered, not answered yet, and for a GPU only.

WORDS choose studies by their names and questions.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, TypedDict

from ablate.commands import DONE, add_json, add_store, print_json, print_table

if TYPE_CHECKING:
    from ablate.wings.results.recorded import Recorded
    from store import Store

WIDTH = 90
"""Maximum length of an answer or a question, in characters."""
STORED = ("name", "scale", "question", "runs", "ended")
"""Columns that are listed for a store's studies."""


class ListedStudy(TypedDict, total=False):
    """A listed study."""

    name: str
    scale: str
    question: str
    runs: int
    ended: int
    answer: str
    stage: str
    needs: str | None
    search: bool
    recorded: list[Recorded]
    labels: dict[str, str]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="WORDS", help="words of a study's name or question")
    parser.add_argument("--shipped", action="store_true", help="list only the studies that ship with the tool")
    add_store(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    stored = [] if options.shipped else list(_stored(options.store, options.words))
    with_shipped = options.shipped or options.words or options.json or not stored
    shipped = list(_shipped(options.words)) if with_shipped else []
    # Answered studies, then the others by what they need, then searches.
    shipped.sort(key=lambda row: (not row["recorded"], row["search"], row["needs"] or ""))
    if options.json:
        print_json({"stored": stored, "shipped": shipped})
        return DONE
    if stored:
        rows = [("study", "scale", "runs", "answer")]
        for row in stored:
            answer = row["stage"] if "stage" in row else _short(row["answer"])
            rows.append((row["name"], row["scale"], f"{row['ended']}/{row['runs']}", answer))
        print_table(rows, text_columns=4)
    if not stored and not shipped:
        words = " and ".join(map(repr, options.words))
        print(f"No study matches {words} in its name or question: `ablate list --shipped` lists all that ship.")
    if shipped:
        from ablate.wings.results.recorded import sentence

        for title, rows_of in groupby(shipped, _group):
            table = [(title, "question and findings")]
            for row in rows_of:
                found = [f"→ {sentence(each)}" for each in row["recorded"]]
                said = set(re.findall(r"\w+", " ".join(each["answer"] for each in row["recorded"])))
                arms = "; ".join(f"{arm}: {label}" for arm, label in row["labels"].items() if arm in said)
                table.append((row["name"], "\n".join(filter(None, (_short(row["question"]), *found, arms)))))
            print_table(table, text_columns=2)
        print("`ablate plan NAME` shows a study's cost, `ablate run NAME` runs it, `ablate new NAME` starts your own.")
    return DONE


def _stored(store: str, words: Sequence[str]) -> Iterator[ListedStudy]:
    """Studies of a store that match, those that tune their arms last; none if the store does not exist yet."""
    if not Path(store).is_dir():
        return
    import ablate
    from ablate.wings.browse.status import tuning_states

    found = ablate.open(store)
    for name, scale, question, runs, ended in found.studies.select(STORED).iter_rows():
        if _has(name, question, words):
            answer = _answer(found.store, name, scale) if ended else ""
            yield {"name": name, "scale": scale, "question": question, "runs": runs, "ended": ended, "answer": answer}
    for each in tuning_states(found.store):
        if _has(each.name, each.question, words):
            about: ListedStudy = {"name": each.name, "scale": each.scale, "question": each.question}
            yield {**about, "runs": each.runs, "ended": each.ended, "answer": "", "stage": each.stage}


def _answer(store: Store, name: str, scale: str) -> str:
    """A study's headline, or the reason why it has none."""
    import reports
    from store import StoreError
    from store.errors import ReportError

    try:
        return reports.headline(reports.summarise(store.study(name, scale).path, store))
    except (ReportError, StoreError) as error:
        return str(error)


def _shipped(words: Sequence[str]) -> Iterator[ListedStudy]:
    from ablate.study.written import SHIPPED, read_study, shipped
    from ablate.wings.results.recorded import recorded

    for name in words if set(words) <= set(shipped()) and words else shipped():  # names are no words for others
        data = read_study(name).document.data
        found = recorded(SHIPPED / f"{name}.yaml")
        if name in words or _has(name, data["question"], words):
            yield {
                "name": name,
                "question": data["question"],
                "needs": data.get("needs"),
                "search": "search" in data,
                "recorded": found,
                "labels": dict(data.get("labels") or {}),
            }


def _group(row: ListedStudy) -> str:
    if row["recorded"]:
        return "shipped study"
    if row["search"]:
        return "for `ablate search`"
    return f"needs {row['needs']}" if row["needs"] else "not answered yet"


def _has(name: str, question: str, phrases: Sequence[str]) -> bool:
    from zoo.vocabulary import says

    return all(says(f"{name} {question}", phrase) for phrase in phrases)


def _short(text: str) -> str:
    return shorten(text, WIDTH, placeholder=" …")
