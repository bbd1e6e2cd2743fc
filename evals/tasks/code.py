"""Items of the tasks that are made from held-out Python sources: what its grammar or its names decide.

Of each item's choices exactly one is right, which Python's own parser and tokenizer say. Right answers are spread
evenly, so that no constant answer, and no preference for what is short or frequent, is better than chance.
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

from evals.datafiles import DataError

OPENERS, CLOSERS = "([{", ")]}"
INDENT = "    "
LINES_PER_FUNCTION = 4
ITEMS_PER_DOCUMENT = 40
Item = dict[str, Any]


def brackets(documents: Sequence[str], seed: int, items: int, context_characters: int, **_: Any) -> dict[str, Dataset]:
    """Which bracket closes, `)` or `]`? The one that was opened last stands in the context, and one of another kind is
    open around it or was closed within. As many items of either; chance is ½."""

    def found(text: str, _: random.Random) -> Iterator[tuple[str, Item]]:
        for opened, closed, around in _bracket_pairs(text):
            kinds = {*around, *text[opened + 1 : closed]} & (set(OPENERS) - {text[opened]})
            if text[opened] != "{" and kinds and closed - opened <= context_characters:
                context = text[max(0, closed - context_characters) : closed]
                yield text[closed], {"context": context, "choices": [")", "]"], "label": ")]".index(text[closed])}

    return {"test": _dataset(_balanced(documents, found, items, seed))}


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
    which Python's grammar refuses the statement. Right and wrong are as often the deeper one; chance is ½."""

    def found(text: str, draw: random.Random) -> Iterator[tuple[str, Item]]:
        for place, *lines in _forced_lines(text, draw):
            right, *_ = choices = [_cut(line, line_characters) for line in lines]
            choices.sort(key=len)
            label = choices.index(right)
            context = text[max(0, place - context_characters) : place]
            yield str(label), {"context": context, "choices": choices, "label": label}

    return {"test": _dataset(_balanced(documents, found, items, seed))}


def _cut(line: str, characters: int) -> str:
    """The indentation, and so many characters after it."""
    return line[: len(line) - len(line.lstrip()) + characters]


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
    """Which name was defined? Where a parameter of the function is used, it against a parameter of another function
    that does not occur in the context. Two such places are two items with the same two choices, each right once, so
    that how frequent or how long a name is gives nothing away; chance is ½."""

    def found(text: str, _: random.Random) -> Iterator[tuple[str, Item]]:
        for place, name in _uses(text, context_characters):
            yield "", {"context": text[max(0, place - context_characters) : place], "name": name}

    draw = random.Random(seed)
    drawn = _balanced(documents, found, 2 * items, seed)
    rows: list[Item] = []
    for pair in zip(drawn[::2], drawn[1::2], strict=False):
        first, second = (item["name"] for item in pair)
        if len(rows) < items and second not in pair[0]["context"] and first not in pair[1]["context"]:
            rows += [_named(item, draw.sample([first, second], 2)) for item in pair]
    return {"test": _dataset(rows)}


def _named(item: Item, choices: list[str]) -> Item:
    kept = {"document": item["document"], "context": item["context"]}
    return {**kept, "choices": choices, "label": choices.index(item["name"])}


def _uses(text: str, reach: int) -> Iterator[tuple[int, str]]:
    """(place, name) of the first use of each parameter, no further than `reach` characters from where it is defined."""
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
        for node in chain.from_iterable(map(ast.walk, function.body)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in defined:
                place = starts[node.lineno - 1] + node.col_offset
                if place - defined.pop(node.id) <= reach:
                    yield place, node.id


Finder = Callable[[str, random.Random], Iterator[tuple[str, Item]]]
"""Items of a document, each with its class."""


def _balanced(documents: Sequence[str], found: Finder, items: int, seed: int) -> list[Item]:
    """About `items` of what is found, the same number of each class, spread over the documents and in random order."""
    draw = random.Random(seed)
    by_class: dict[str, list[Item]] = {}
    for number in draw.sample(range(len(documents)), len(documents)):
        of = list(found(documents[number], draw))
        for name, item in draw.sample(of, min(len(of), ITEMS_PER_DOCUMENT)):
            by_class.setdefault(name, []).append({"document": number, **item})
    each = min([-(-items // len(by_class)), *map(len, by_class.values())]) if by_class else 0
    rows = [item for _, of in sorted(by_class.items()) for item in draw.sample(of, each)]
    draw.shuffle(rows)
    return rows


def _dataset(rows: list[Item]) -> Dataset:
    if not rows:
        raise DataError("the held-out documents have no Python to make items of")
    return Dataset.from_list(rows)
