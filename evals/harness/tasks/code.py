"""Items of the tasks built from held-out Python sources: what its grammar or its names decide.

Of each item's choices exactly one is right, which Python's own parser and tokenizer say. Right answers are spread
evenly over what is alike without the context, so that no constant answer, and no preference for what is short or
frequent, is better than chance.
"""

from __future__ import annotations

import ast
import io
import random
import tokenize
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

from datasets import Dataset

from evals.harness.datafiles import TaskDataError
from evals.harness.tasks.heldout import Item

OPENERS, CLOSERS = "([{", ")]}"
INDENT = "    "
LINES_PER_FUNCTION = 4
ITEMS_PER_DOCUMENT = 40


def brackets(documents: Sequence[str], seed: int, items: int, context_characters: int, **_: Any) -> dict[str, Dataset]:
    """Which bracket closes, `)` or `]`? The one that was opened last stands in the context, and one of another kind is
    open around it or was closed within. As many items of either; chance is ½."""

    def found(text: str, _: random.Random) -> Iterator[tuple[tuple[Any, ...], Item]]:
        for opened, closed, around in _bracket_pairs(text):
            kinds = {*around, *text[opened + 1 : closed]} & (set(OPENERS) - {text[opened]})
            if text[opened] != "{" and kinds and closed - opened <= context_characters:
                context = text[max(0, closed - context_characters) : closed]
                label = ")]".index(text[closed])
                yield (label,), {"context": context, "choices": [")", "]"], "label": label}

    return {"test": _dataset(_balanced(documents, found, items, seed, answers=(0, 1)))}


def _bracket_pairs(text: str) -> Iterator[tuple[int, int, str]]:
    """Where brackets open and close, and those that are open around them; those in strings and comments left out."""
    starts = _line_starts(text)
    stack: list[int] = []
    for token in _tokens(text):
        place = starts[token.start[0] - 1] + token.start[1]
        if token.type == tokenize.OP and token.string in OPENERS:
            stack.append(place)
        elif token.type == tokenize.OP and token.string in CLOSERS:
            yield stack.pop(), place, "".join(text[each] for each in stack)


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    """The tokens of a source; none where it is not Python."""
    if _parsed(text) is None:
        return iter(())
    return tokenize.generate_tokens(io.StringIO(text).readline)


def _parsed(text: str) -> ast.Module | None:
    """None where it is not Python: held-out text has prose too."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _line_starts(text: str) -> list[int]:
    """Where each line starts, as Python counts lines."""
    starts = [0]
    for line in io.StringIO(text):
        starts.append(starts[-1] + len(line))
    return starts


def indentation(
    documents: Sequence[str], seed: int, items: int, context_characters: int, line_characters: int, **_: Any
) -> dict[str, Dataset]:
    """Does this line dedent? A line of a block as it stands, against the same line one level deeper or less deep, with
    which Python's grammar refuses the statement. Of the items with the same two levels, the deeper is right as often as
    not, since some levels are more frequent than others; chance is ½."""

    def found(text: str, draw: random.Random) -> Iterator[tuple[tuple[Any, ...], Item]]:
        for place, *lines in _forced_lines(text, draw):
            # the indentation, and so many characters after it
            choices = [line[: len(line) - len(line.lstrip()) + line_characters] for line in lines]
            right = choices[0]
            choices.sort(key=len)
            label = choices.index(right)
            context = text[max(0, place - context_characters) : place]
            levels = [len(line) - len(line.lstrip()) for line in choices]
            yield (*levels, label), {"context": context, "choices": choices, "label": label}

    return {"test": _dataset(_balanced(documents, found, items, seed, answers=(0, 1)))}


def _forced_lines(text: str, draw: random.Random) -> Iterator[tuple[int, str, str]]:
    """(place, line, the line at another level) where only the first is legal, in random order.

    The other level is refused by the parser with the function around it. A line that is moved by one level within a
    function cannot leave it, so that what is around the function does not matter.
    """
    tree = _parsed(text)
    if tree is None:
        return
    starts, lines = _line_starts(text), list(io.StringIO(text))
    begins = {token.start[0] - 1 for token in _line_openers(text)}
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for function in draw.sample(functions, len(functions)):
        first, last = function.lineno - 1, function.end_lineno or function.lineno
        inside = sorted(begins & set(range(first + 1, last)))
        for number in draw.sample(inside, min(LINES_PER_FUNCTION, len(inside))):
            line = lines[number]
            wrong = INDENT + line if draw.randrange(2) else line.removeprefix(INDENT)
            moved = "".join((*lines[first:number], wrong, *lines[number + 1 : last]))
            if wrong != line and _parsed(f"if 1:\n{moved}" if function.col_offset else moved) is None:
                yield starts[number], line.rstrip("\n"), wrong.rstrip("\n")


def _line_openers(text: str) -> Iterator[tokenize.TokenInfo]:
    """The first token of each logical line: lines within brackets and strings may be indented as one likes."""
    fresh = True
    for token in _tokens(text):
        if token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.NL, tokenize.COMMENT):
            fresh = fresh or token.type == tokenize.NEWLINE
            continue
        if fresh:
            yield token
        fresh = False


def names(documents: Sequence[str], seed: int, items: int, context_characters: int, **_: Any) -> dict[str, Dataset]:
    """Where is this name known? A parameter where its function uses it, against the place where another function uses
    one of its own, in whose context the name does not occur. Two such places are two items with the same two contexts,
    each right once, so that what may follow a context gives nothing away; nor does the name, which is the same after
    both. Chance is ½."""

    def found(text: str, _: random.Random) -> Iterator[tuple[tuple[Any, ...], Item]]:
        for place, name in _uses(text, context_characters):
            yield (None,), {"context": text[max(0, place - context_characters) : place], "name": name}

    draw = random.Random(seed)
    drawn = _balanced(documents, found, 4 * items, seed)
    drawn.sort(key=lambda item: str(item["context"])[-1:])  # neighbours end alike: less else differs
    apart = [
        pair
        for pair in zip(drawn[::2], drawn[1::2], strict=False)
        if pair[0]["name"] not in pair[1]["context"] and pair[1]["name"] not in pair[0]["context"]
    ]
    chosen = draw.sample(apart, min(len(apart), items // 2))
    rows = []
    for pair in chosen:
        for place in pair:
            contexts = [item["context"] for item in draw.sample(pair, 2)]
            told = {"document": place["document"], "contexts": contexts, "label": contexts.index(place["context"])}
            rows.append({**told, "continuation": place["name"]})
    return {"test": _dataset(rows)}


def _uses(text: str, reach: int) -> Iterator[tuple[int, str]]:
    """(place, name) of the last use of each parameter that is no further than `reach` from where it is defined."""
    tree = _parsed(text)
    if tree is None or not text.isascii():  # ast counts bytes
        return
    starts = _line_starts(text)
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        defined = {
            argument.arg: starts[argument.lineno - 1] + argument.col_offset
            for argument in (*function.args.args, *function.args.kwonlyargs)
            if argument.arg not in ("self", "cls")
        }
        last: dict[str, int] = {}
        for node in chain.from_iterable(map(ast.walk, function.body)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in defined:
                place = starts[node.lineno - 1] + node.col_offset
                if place - defined[node.id] <= reach:
                    last[node.id] = max(place, last.get(node.id, 0))
        yield from ((place, name) for name, place in last.items())


Finder = Callable[[str, random.Random], Iterator[tuple[tuple[Any, ...], Item]]]
"""Items of a document, each with its kind: (what may not give it away, …, which answer is right)."""


def _balanced(
    documents: Sequence[str], found: Finder, items: int, seed: int, answers: Sequence[Any] = (None,)
) -> list[Item]:
    """About `items` of what is found, spread over the documents and in random order.

    Of items that are alike but for which of `answers` is right, there are as many for each answer.
    """
    draw = random.Random(seed)
    kinds: dict[tuple[Any, ...], list[Item]] = {}
    for number in draw.sample(range(len(documents)), len(documents)):
        of = list(found(documents[number], draw))
        for kind, item in draw.sample(of, min(len(of), ITEMS_PER_DOCUMENT)):
            kinds.setdefault(kind, []).append({"document": number, **item})
    alike = sorted({kind[:-1] for kind in kinds})
    sets = [rows for first in alike for rows in zip(*(kinds.get((*first, a), []) for a in answers), strict=False)]
    rows = list(chain.from_iterable(draw.sample(sets, min(len(sets), -(-items // len(answers))))))
    draw.shuffle(rows)
    return rows


def _dataset(rows: list[Item]) -> Dataset:
    if not rows:
        raise TaskDataError("the held-out documents contain no Python to build items from")
    return Dataset.from_list(rows)
