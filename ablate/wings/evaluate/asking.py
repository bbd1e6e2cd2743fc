"""Evaluation requests for one run, in Python and on the command line: settings by name.

A name is a key of the section `evals:` of a study, or an option of a field (see `evals.option`) such as `at` of
diagnostics. Evaluations may share an option name: it sets the one that reads the kind of data at hand. A request for an
evaluation by its name switches the default evaluations off.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from evals.evaluations import EvaluationSpec, evaluations
from evals.option import Option
from evals.spec import EvalSettings, EvaluationError, nothing
from evals.subject import Conditions
from zoo.settings.axis import Spec
from zoo.settings.descriptions import descriptions

SectionMap: TypeAlias = dict[str, Any]
"""The section `evals` of a study as written, or settings by name; not validated yet."""


@dataclass(frozen=True)
class Setting:
    """Field that a name sets: of an evaluation or, if `evaluation` is None, of the shared settings; the whole
    evaluation if `field` is None. `option` is its form on the command line."""

    evaluation: str | None
    field: str | None
    option: Option | None
    help: str

    @property
    def cls(self) -> type[EvaluationSpec] | None:
        return evaluations()[self.evaluation] if self.evaluation else None

    @property
    def path(self) -> tuple[str, ...]:
        """Path of the key in the section."""
        around = () if self.cls is None or self.cls.inline else (self.evaluation,)
        return tuple(filter(None, (*around, self.field)))


def named(path: str) -> str:
    """Name of the setting at a path of the section: `diagnostics.at` is `at`. Paths without a name stay as they are."""
    keys = tuple(path.split("."))
    known = {setting.path: name for name, setting in _settings()}
    for length in range(len(keys), 0, -1):
        if keys[:length] in known:
            return ".".join((known[keys[:length]], *keys[length:]))
    return path


def section(settings: Mapping[str, object], conditions: Conditions) -> SectionMap:
    """Section of a study with these settings, and default evaluations switched off if one is requested by name. Raises
    EvaluationError for options of evaluations that do not read this kind of data."""
    found: SectionMap = {}
    known = _by_name()
    for name, value in settings.items():
        asked = known.get(name, [])
        reading = [each for each in asked if each.cls is None or each.cls.reads is conditions.data]
        if asked and not reading:
            raise EvaluationError(name, str(asked[0].cls and asked[0].cls.unmet(conditions)))
        # unknown names are left for the section's validation
        *around, last = (name,) if name in evaluations() or not reading else reading[0].path
        inner = found
        for key in around:
            inner[key] = inner.get(key) if isinstance(inner.get(key), dict) else {}  # `true` sets no fields
            inner = inner[key]
        inner[last] = value
    if any(name in settings for name in evaluations()):
        default = {n: cls for n, cls in evaluations().items() if cls.by_default and cls.reads is conditions.data}
        found |= {name: nothing(cls) for name, cls in default.items() if name not in found}
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add an option for each setting that the command line has. Words stay unparsed: `given` parses them."""
    for name, settings in _by_name().items():
        option, text = settings[0].option, "; ".join(dict.fromkeys(each.help for each in settings))
        flag = f"--{name.replace('_', '-')}"
        if option is None or option.flag:
            parser.add_argument(flag, action="store_true", help=text)
        elif option.join is None:
            parser.add_argument(flag, metavar=option.metavar, help=text)
        else:
            parser.add_argument(flag, nargs="+", action="extend", metavar=option.metavar, help=text)


def given(options: argparse.Namespace) -> SectionMap:
    """Settings given as options. Raises EvaluationError for a word that cannot be parsed."""
    words = {name: getattr(options, name) for name in _by_name()}
    return {name: _value(name, words[name], settings[0]) for name, settings in _by_name().items() if words[name]}


def _value(name: str, words: Any, setting: Setting) -> Any:
    if setting.option is None or setting.option.flag:
        return True
    if setting.option.join is None:
        value = _read(name, words, setting.option)
    else:
        values = [_read(name, word, setting.option) for word in words]
        try:
            value = setting.option.join(values)
        except ValueError as error:
            raise EvaluationError(name, str(error)) from error
    return {setting.field: value} if name == setting.evaluation != setting.field else value


def _read(name: str, word: str, option: Option) -> Any:
    try:
        return option.read(word)
    except ValueError as error:
        raise EvaluationError(name, f"{error}, not {word!r}") from error


def _by_name() -> dict[str, list[Setting]]:
    found: dict[str, list[Setting]] = {}
    for name, setting in _settings():
        found.setdefault(name, []).append(setting)
    return found


def _settings() -> Iterator[tuple[str, Setting]]:
    for name, cls in evaluations().items():
        fields = dict(_of_fields(name, cls))
        if name not in fields:
            yield name, Setting(name, None, None, _sentence(cls.__doc__))
        yield from fields.items()
    yield from _of_fields(None, EvalSettings)


def _of_fields(evaluation: str | None, cls: type[Spec]) -> Iterator[tuple[str, Setting]]:
    for name, field in cls.model_fields.items():
        for option in field.metadata:
            if isinstance(option, Option):
                yield option.name or name, Setting(evaluation, name, option, _sentence(descriptions(cls)[name]))


def _sentence(text: str | None) -> str:
    """First sentence of a text, in the form of a help text: without an initial capital or a full stop."""
    first = " ".join((text or "").split()).partition(". ")[0].rstrip(".")
    return first[:1].lower() + first[1:]
