"""Items of the tasks built from held-out Python sources, decided by Python's grammar or by names.

Exactly one choice of each item is right, according to Python's own parser and tokenizer. Among items that look alike
without the context, the right answers are balanced, so that no constant answer, and no preference for short or frequent
choices, is better than chance.
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
    """Which bracket closes, `)` or `]`? The context contains its opening bracket, and a bracket of another kind is open
    around it or occurs within it. Both answers are equally frequent; chance is ½."""

    def found(text: str, _: random.Random) -> Iterator[tuple[tuple[Any, ...], Item]]:
        for opened, closed, around in _bracket_pairs(text):
            kinds = {*around, *text[opened + 1 : closed]} & (set(OPENERS) - {text[opened]})
            if text[opened] != "{" and kinds and closed - opened <= context_characters:
                context = text[max(0, closed - context_characters) : closed]
                label = ")]".index(text[closed])
                yield (label,), {"context": context, "choices": [")", "]"], "label": label}

    return {"test": _dataset(_balanced(documents, found, items, seed, answers=(0, 1)))}


def _bracket_pairs(text: str) -> Iterator[tuple[int, int, str]]:
    """Positions of opening and closing brackets, and the brackets open around them; not in strings and comments."""
    starts = _line_starts(text)
    stack: list[int] = []
    for token in _tokens(text):
        place = starts[token.start[0] - 1] + token.start[1]
        if token.type == tokenize.OP and token.string in OPENERS:
            stack.append(place)
        elif token.type == tokenize.OP and token.string in CLOSERS:
            yield stack.pop(), place, "".join(text[each] for each in stack)


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    """Tokens of a source; none if it is not Python."""
    if _parsed(text) is None:
        return iter(())
    return tokenize.generate_tokens(io.StringIO(text).readline)


def _parsed(text: str) -> ast.Module | None:
    """Syntax tree; None if the text is not Python, since held-out text contains prose too."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _line_starts(text: str) -> list[int]:
    """Position of each line's first character, with lines as Python counts them."""
    starts = [0]
    for line in io.StringIO(text):
        starts.append(starts[-1] + len(line))
    return starts


def indentation(
    documents: Sequence[str], seed: int, items: int, context_characters: int, line_characters: int, **_: Any
) -> dict[str, Dataset]:
    """Does this line dedent? A line of a block in its place, against the same line one level deeper or shallower, where
    Python's grammar rejects the code. Among items with the same two levels, the deeper one is right in half, since some
    levels are more frequent than others; chance is ½."""

    def found(text: str, draw: random.Random) -> Iterator[tuple[tuple[Any, ...], Item]]:
        for place, *lines in _forced_lines(text, draw):
            # the indentation, and `line_characters` characters after it
            choices = [line[: len(line) - len(line.lstrip()) + line_characters] for line in lines]
            right = choices[0]
            choices.sort(key=len)
            label = choices.index(right)
            context = text[max(0, place - context_characters) : place]
            levels = [len(line) - len(line.lstrip()) for line in choices]
            yield (*levels, label), {"context": context, "choices": choices, "label": label}

    return {"test": _dataset(_balanced(documents, found, items, seed, answers=(0, 1)))}


def _forced_lines(text: str, draw: random.Random) -> Iterator[tuple[int, str, str]]:
    """(position, line, the line at another level), where only the first is valid Python, in random order.

    The parser checks the other level within the enclosing function. A line that moves by one level cannot leave its
    function, so that the code around the function does not matter.
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
    """First token of each logical line: physical lines within brackets and strings may have any indentation."""
    fresh = True
    for token in _tokens(text):
        if token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.NL, tokenize.COMMENT):
            fresh = fresh or token.type == tokenize.NEWLINE
            continue
        if fresh:
            yield token
        fresh = False


def names(documents: Sequence[str], seed: int, items: int, context_characters: int, **_: Any) -> dict[str, Dataset]:
    """In which context is this name known? One context ends where a function uses its parameter, the other, in which
    the name does not occur, where another function uses one of its own. Two such places give two items with the same
    two contexts, each right once, so that the contexts alone do not give the answer away; nor does the name, which is
    the same after both. Chance is ½."""

    def found(text: str, _: random.Random) -> Iterator[tuple[tuple[Any, ...], Item]]:
        for place, name in _uses(text, context_characters):
            yield (None,), {"context": text[max(0, place - context_characters) : place], "name": name}

    draw = random.Random(seed)
    drawn = _balanced(documents, found, 4 * items, seed)
    drawn.sort(key=lambda item: str(item["context"])[-1:])  # neighbours end alike, and so differ less
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
    """(position, name) of the last use of each parameter within `reach` characters of its definition."""
    tree = _parsed(text)
    if tree is None or not text.isascii():  # ast's columns count bytes
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
"""Items of a document, each with its kind: (properties that must not give the answer away, …, the right answer)."""


def _balanced(
    documents: Sequence[str], found: Finder, items: int, seed: int, answers: Sequence[Any] = (None,)
) -> list[Item]:
    """About `items` of the found items, spread over the documents and in random order.

    Among items whose kinds differ only in which of `answers` is right, each answer is equally frequent.
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
