"""Items made from Python sources: one right answer, which the parser and a hand-written scan confirm, and no clue."""

from __future__ import annotations

import ast
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import scipy.stats

from evals.harness.datafiles import TaskDataError
from evals.harness.tasks import code, heldout

Make = Callable[..., dict[str, Any]]
SIZES = {"items": 60, "context_characters": 300}
TASKS: dict[str, Make] = {
    "brackets": lambda texts, seed: code.brackets(texts, seed=seed, **SIZES),
    "indentation": lambda texts, seed: code.indentation(texts, seed=seed, line_characters=40, **SIZES),
    "names": lambda texts, seed: code.names(texts, seed=seed, **SIZES),
    "words": lambda texts, seed: heldout.last_words(texts, seed=seed, **SIZES),
}


def source(draw: random.Random) -> str:
    """A module of functions with nested brackets, branches and comments, whose names are its own."""
    word = lambda: "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=7))  # noqa: E731
    lines = [f'"""{word()} ( [ {word()}"""', ""]
    for _ in range(12):
        a, b = word(), word()
        lines += [
            f"def {word()}({a}, {b}=None):",
            f"    # what {word()} of the {word()} says about {word()}",
            f"    if {a}[0] in ({b}, [1, 2]):",
            f"        {word()} = {{'x': [{a}({b})]}}",
            "    else:",
            f"        return [{b}, ({a}[1], ')')]",
            f"    return {b}",
            "",
        ]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    draw = random.Random(0)
    return [*(source(draw) for _ in range(6)), "Prose with a ( bracket, which is not Python.\n" * 20]


@pytest.mark.parametrize("task", TASKS)
def test_the_seed_decides_the_items(task: str, texts: list[str]) -> None:
    first, again, other = (TASKS[task](texts, seed)["test"].to_list() for seed in (0, 0, 1))
    assert first == again
    assert first != other


@pytest.mark.parametrize("task", TASKS)
def test_right_answers_are_spread_and_in_the_text(task: str, texts: list[str]) -> None:
    items = TASKS[task](texts, 0)["test"]
    assert len(items) >= 15
    counts = Counter(items["label"])
    assert scipy.stats.chisquare([counts[i] for i in range(len(read(items[0])))]).pvalue > 0.01
    for item in items:
        choices = read(item)
        assert len(set(choices)) == len(choices)
        right = choices.pop(item["label"])
        assert right in texts[item["document"]]
        assert task == "words" or all(choice not in texts[item["document"]] for choice in choices)


def read(item: dict[str, Any]) -> list[str]:
    """The text that is read with each choice: a context and its continuation."""
    if "contexts" in item:
        return [context + item["continuation"] for context in item["contexts"]]
    return [item["context"] + choice for choice in item["choices"]]


def test_the_right_bracket_is_that_of_the_innermost_open_one(texts: list[str]) -> None:
    """The label agrees with a scan of the whole text up to the place, strings and comments left out by hand."""
    for item in code.brackets(texts, seed=0, **SIZES)["test"]:
        text = texts[item["document"]]
        place = text.index(item["context"]) + len(item["context"])
        before = text[:place].replace("')'", "   ")
        stack: list[str] = []
        for character in before[before.index('"""', 3) :]:
            if character in "([{":
                stack.append(character)
            elif character in ")]}":
                stack.pop()
        assert {"(": ")", "[": "]"}[stack[-1]] == item["choices"][item["label"]]


def test_only_one_indentation_is_python(texts: list[str]) -> None:
    """The whole module with the wrong line does not parse."""
    for item in code.indentation(texts, seed=0, line_characters=200, **SIZES)["test"]:
        text = texts[item["document"]]
        place = text.index(item["context"]) + len(item["context"])
        right, wrong = item["choices"][item["label"]], item["choices"][1 - item["label"]]
        assert right.strip() == wrong.strip()
        assert max(len(each.strip()) for each in (right, wrong)) <= 200
        assert abs(len(right) - len(wrong)) == 4
        ast.parse(text)
        with pytest.raises(SyntaxError):
            ast.parse(text[:place] + wrong + text[place + len(right) :])


def test_the_name_is_defined_in_the_right_context_and_not_in_the_wrong_one(texts: list[str]) -> None:
    for item in code.names(texts, seed=0, **SIZES)["test"]:
        right, wrong = item["contexts"][item["label"]], item["contexts"][1 - item["label"]]
        assert item["continuation"] in right[right.rindex("def ") :].partition(":")[0]
        assert item["continuation"] not in wrong


def test_preferring_some_contexts_is_right_as_often_as_wrong(texts: list[str]) -> None:
    items = code.names(texts, seed=0, **SIZES)["test"]
    for prefer in (min, max):
        right = sum(prefer(item["contexts"]) == item["contexts"][item["label"]] for item in items)
        assert 2 * right == len(items)


def test_no_level_of_indentation_is_right_more_often_than_another() -> None:
    """Half of the lines of these texts are at one level: whoever always says that one is right half of the time."""
    deep = "\n".join(
        f"def f{i}(a):\n    if a:\n        b{i} = a\n        c{i} = a\n        d{i} = a\n    return a\n"
        for i in range(40)
    )
    items = code.indentation([deep, deep + "x = 1\n"], seed=0, line_characters=40, items=40, context_characters=300)
    rows = items["test"].to_list()
    assert len(rows) >= 10
    levels = lambda row: [len(choice) - len(choice.lstrip()) for choice in row["choices"]]  # noqa: E731
    for pair in {tuple(levels(row)) for row in rows}:
        labels = [row["label"] for row in rows if tuple(levels(row)) == pair]
        assert 2 * sum(labels) == len(labels)


def test_the_last_word_ends_its_line(texts: list[str]) -> None:
    for item in heldout.last_words(texts, seed=0, **SIZES)["test"]:
        text, right = texts[item["document"]], item["choices"][item["label"]]
        end = text.index(item["context"] + right) + len(item["context"] + right)
        line = text[text.rfind("\n", 0, end) + 1 :].partition("\n")[0]
        assert line.rstrip(".:;,)").endswith(right)
        assert len(line.split()) >= 5


def test_lines_of_prose_end_in_words_too() -> None:
    """Paragraphs of any line ends, with speech in them."""
    ends = ("house.\r\n", 'garden!"\r\n', "river?”\n", "mountain\r\n")
    text = "".join(f"One went at last to the {end}" for end in ends)
    items = heldout.last_words([text], seed=0, items=1, context_characters=300)["test"]
    assert set(items[0]["choices"]) == {" house", " garden", " river", " mountain"}


@pytest.mark.parametrize("task", ["brackets", "indentation", "names"])
def test_prose_has_no_items(task: str) -> None:
    with pytest.raises(TaskDataError, match="the held-out documents contain no Python"):
        TASKS[task](["Once upon a time, there was (perhaps) a bracket."], 0)
