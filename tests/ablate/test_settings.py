"""Every setting has a description that editors show, and values that can be said in words."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

import ablate
from ablate.study.sections import StudySections
from ablate.wings.catalogue.catalogue import catalogued, settings_of
from zoo.settings.axis import Spec
from zoo.settings.descriptions import classes_in, descriptions

OURS = ("ablate.", "evals.", "zoo.")
Ranges = Callable[[type[Spec]], dict[str, str]]
SITE = Path(__file__).parents[2] / "docs" / "site"
FEWEST_WORDS = 3
"""A description that is shorter names a symbol or repeats the setting's own name."""


class Painted(Spec):
    width: Annotated[int, Field(gt=0, le=8)]
    """Width of the brush, in millimetres,
    dry."""
    share: Annotated[float, Field(ge=0, lt=1)] = 0.5
    colour: Literal["red", "blue"] | None = None
    coats: tuple[int, ...] = ()


class Varnished(Painted):
    share: Annotated[float, Field(ge=0)] = 0.0
    """Share of the varnish."""


def test_every_setting_has_a_description() -> None:
    catalogued()  # imports every variant
    specs = [cls for cls in set(subclasses(Spec)) if cls.__module__.startswith(OURS) and cls.__module__ in sys.modules]
    lacking = sorted(
        f"{cls.__module__}.{cls.__name__}.{name}"
        for cls in specs
        for name in cls.model_fields
        if len(descriptions(cls).get(name, "").split()) < FEWEST_WORDS
    )
    assert StudySections in specs and len(specs) > 200
    assert not lacking, f"{len(lacking)} settings without a description: {', '.join(lacking)}"


@pytest.fixture
def ranges_of(monkeypatch: pytest.MonkeyPatch) -> Ranges:
    """Allowed values by setting, as `docs/site/ranges.py`, which is in no package, puts them in words."""
    monkeypatch.syspath_prepend(str(SITE))
    found: Ranges = importlib.import_module("ranges").ranges_of
    return found


def test_every_setting_that_is_shown_has_values(ranges_of: Ranges) -> None:
    classes = {cls for of in catalogued().values() for _, cls in of.values()}
    ranges = {cls: ranges_of(cls) for cls in classes}
    without = [f"{cls.__name__}.{name}" for cls in classes for name in settings_of(cls) if not ranges[cls].get(name)]
    assert len(classes) > 100 and not without


def test_editors_show_descriptions() -> None:
    """All keys at the top of a study, and inside: those of variants too."""
    properties = ablate.study_schema()["properties"]
    lacking = [key for key in properties if not key.startswith("grid.") and not properties[key].get("description")]
    assert len(properties) > 500 and not lacking
    assert properties["base.block.mixer.softcap"]["description"].startswith("c: scores become c · tanh(score / c)")


def fields_of(path: str, *, with_functions: bool) -> dict[str, list[str]]:
    """What classes outside functions have between their methods."""
    found = classes_in(path, with_functions=with_functions)
    return {
        name: [ast.unparse(each) for each in cls.body if isinstance(each, ast.AnnAssign | ast.Expr)]
        for name, cls in found.items()
        if "<locals>" not in name
    }


def test_a_file_without_its_functions_has_the_same_fields(tmp_path: Path) -> None:
    catalogued()
    # Classes of plug-ins that other tests took out again may still be alive.
    ours = [cls for cls in subclasses(Spec) if cls.__module__.startswith(OURS) and cls.__module__ in sys.modules]
    files = {inspect.getsourcefile(cls) or "" for cls in ours}
    assert len(files) > 100
    for path in [*sorted(files), __file__]:
        assert fields_of(path, with_functions=False) == fields_of(path, with_functions=True), path
    odd = tmp_path / "odd.py"
    odd.write_text(
        'class A:\n    def f(\n        self,\n    ):\n        return """\nx ="""\n\n    y: int = 0\n    """Why."""\n'
    )
    assert fields_of(str(odd), with_functions=False) == {"A": ["y: int = 0", "'Why.'"]}


def test_descriptions_are_the_docstrings_below_fields() -> None:
    assert descriptions(Painted) == {"width": "Width of the brush, in millimetres, dry."}
    assert descriptions(Varnished) == {**descriptions(Painted), "share": "Share of the varnish."}
    assert Varnished.model_json_schema()["properties"]["share"]["description"] == "Share of the varnish."


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("width", "integer in (0, 8]"),
        ("share", "number in [0, 1)"),
        ("colour", "`red`, `blue`, `null`"),
        ("coats", "list of integer"),
    ],
)
def test_ranges_are_said_in_words(setting: str, words: str, ranges_of: Ranges) -> None:
    assert ranges_of(Painted)[setting] == words


def subclasses(cls: type[Spec]) -> Iterator[type[Spec]]:
    for each in cls.__subclasses__():
        yield each
        yield from subclasses(each)
