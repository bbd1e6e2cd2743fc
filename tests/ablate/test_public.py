"""Every function of `import ablate`, given what it cannot use: an `AblateError` in one line, before anything runs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import ablate
from ablate.api.public import CHECKS, parts_of
from tests.many import over

FUNCTIONS = {name: found for name in ablate.__all__ if isinstance(found := getattr(ablate, name), FunctionType)}
UNCHECKED = {
    "Any",
    "Bos",
    "LossComparison",
    "Microbatch",
    "Wanted",
    "bool",
    "pd.DataFrame",
    "pl.DataFrame",
    "pl.LazyFrame",
}
"""Types that functions check themselves, or of which any value has a meaning."""
REQUIRED: dict[str, Any] = {"memory": "80GB", "device": "h100", "stores": ["a"], "tokens": 4, "minutes": 5}
"""Values of required arguments that are not paths."""


def parameters() -> Iterator[tuple[str, inspect.Parameter]]:
    for name, function in FUNCTIONS.items():
        yield from ((name, parameter) for parameter in inspect.signature(function).parameters.values())


def names(parameter: inspect.Parameter) -> set[str]:
    return {part.partition("[")[0] for part in parts_of(str(parameter.annotation))}


CHECKED = [(name, of) for name, of in parameters() if names(of) <= CHECKS.keys()]


def arguments(function: str, other: str) -> dict[str, Any]:
    """Required arguments of a function but one."""
    needed = [of for of in inspect.signature(FUNCTIONS[function]).parameters.values() if of.default is of.empty]
    named = [of.name for of in needed if of.kind not in (of.VAR_POSITIONAL, of.VAR_KEYWORD)]
    return {name: REQUIRED.get(name, "nowhere") for name in named if name != other}


def test_there_are_no_other_types() -> None:
    assert set().union(*(names(of) for _, of in parameters())) - CHECKS.keys() == UNCHECKED
    assert len(CHECKED) > 100


@pytest.mark.parametrize("value", [object(), b"bytes"], ids=["object", "bytes"])
@over(CHECKED)
def test_an_argument_of_the_wrong_type_is_named(function: str, parameter: inspect.Parameter, value: object) -> None:
    given = arguments(function, parameter.name)
    by_place = (value,) if parameter.kind is parameter.VAR_POSITIONAL else ()
    name = "temperature" if parameter.kind is parameter.VAR_KEYWORD else parameter.name
    with pytest.raises(ablate.ArgumentError, match=rf"^{name}: expected .+, not ") as error:
        FUNCTIONS[function](*by_place, **given, **({} if by_place else {name: value}))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("function", "given", "says"),
    [
        ("merge", {"path": "nofile.zip"}, "nofile.zip: No such file or directory"),
        (
            "generate",
            {"run": "a", "prompts": "a", "tokens": -4},
            "tokens: expected a whole number from 1 or None, not -4",
        ),
        ("generate", {"run": "a", "prompts": [5]}, "prompts: expected text or a list (of text), not [5]"),
        ("plan", {"study": 5}, "study: expected text or a path or a map or a Study, not 5"),
        ("plan", {"study": "a\0.yaml"}, "study: expected text or a path or a map or a Study, not 'a\\x00.yaml'"),
        ("bench", {"batch": 0}, "batch: expected a whole number from 1, not 0"),
        ("bench", {"dtype": "int8"}, "dtype: expected bfloat16, float16, float32, not 'int8'"),
        ("bench", {"device": "tpu"}, "device: expected cpu, cuda or None, not 'tpu'"),
        (
            "judge",
            {"base": "norm_placement", "budget": float("nan")},
            "budget: expected a number of seconds, not nan",
        ),
        ("judge", {"base": "norm_placement", "alpha": 2}, "alpha: expected a number between 0 and 1, not 2"),
        ("new", {"study": ""}, "study .yaml: a name has letters, digits, '_', '+' and '-', at most 40"),
        ("fit", {"study": "gqa_groups", "at": "llama3", "memory": 0}, "memory 0: expected a size above 0"),
        (
            "fit",
            {"study": "gqa_groups", "at": "llama3", "memory": "80"},
            "memory 80: a size needs a unit: 80GB or 80GiB",
        ),
        ("fit", {"study": "gqa_groups", "at": "llama3", "memory": "8GB", "contexts": [0]}, "contexts: expected a list"),
        ("logs", {"run": "no"}, "no: there is no such run in runs/"),
        ("open", {}, "runs"),
        ("check", {}, "runs"),
        ("report", {"path": "nowhere"}, "nowhere is not a study, search or store"),
        ("record_result", {"path": "nowhere"}, "nowhere is not a study, search or store"),
        ("compare", {"losses": "no.csv"}, "losses no.csv: cannot be read: No such file or directory"),
        ("compare", {"losses": 5}, "losses: expected a frame or a path, not int"),
        ("import_model", {"directory": "nowhere"}, "there is no folder"),
        ("plug_in", "no.py", "plugin no.py: No such file or directory"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    function: str, given: dict[str, Any] | str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ablate.AblateError) as error:
        found = FUNCTIONS[function](given) if isinstance(given, str) else FUNCTIONS[function](**given)
        list(found)  # of the iterators
    assert str(error.value).startswith(says) and "\n" not in str(error.value) and "Errno" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("function", sorted({name for name, _ in CHECKED}))
def test_whole_numbers_have_64_bits(function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every argument that may be a number, of every function, before anything is written."""
    monkeypatch.chdir(tmp_path)
    for parameter in [parameter for name, parameter in CHECKED if name == function]:
        if parameter.kind is not parameter.VAR_POSITIONAL and re.search(
            r"\b(int|float|Count)\b", str(parameter.annotation)
        ):
            name = "temperature" if parameter.kind is parameter.VAR_KEYWORD else parameter.name
            given = arguments(function, parameter.name)
            with pytest.raises(ablate.ArgumentError, match=rf"^{name}: whole numbers have at most 64 bits, not 67$"):
                FUNCTIONS[function](**given, **{name: 10**20})
    assert list(tmp_path.iterdir()) == []
