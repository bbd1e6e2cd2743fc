"""All checks on one variant, by itself and with every choice of the other axes that it combines with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from zoo.conformance.checks import CHECKS
from zoo.conformance.combinations import covering_one
from zoo.conformance.subject import Subject
from zoo.matrix import Option, axes, combine
from zoo.spec import ModelSpec


@dataclass
class Finding:
    """Result of one check: the number of models checked, and for each failure the model and the reason."""

    check: str
    property: str
    models: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)


def options_of(kind: str) -> list[Option]:
    """The choices that are a variant, on whichever axes it is one. There is more than one for some settings of it."""
    found = (option for of in axes().values() for option in of)
    return [option for option in found if kind in _kinds(option)]


def checkable() -> set[str]:
    """Every variant that is a part of a model."""
    return {kind for of in axes().values() for option in of for kind in _kinds(option)}


def _kinds(option: Option) -> list[str]:
    return [str(value["kind"]) for value in option.edits.values() if isinstance(value, dict) and "kind" in value]


def check_variant(kind: str, say: Callable[[str], None] = lambda _: None) -> list[Finding]:
    """Every check on every model with the variant, each named by its choices. `say` is told of each model first."""
    findings = {check: Finding(check.__name__, _said(check.__doc__)) for check in CHECKS}
    models = list(_models(kind))
    for number, (name, spec) in enumerate(models, 1):
        say(f"{number}/{len(models)}  {name}")
        subject = Subject(spec)
        for check, finding in findings.items():
            finding.models += 1
            if reason := _failure(check, subject):
                finding.failures.append((name, reason))
    return list(findings.values())


def _models(kind: str) -> Iterator[tuple[str, ModelSpec]]:
    """The simplest first: a mistake is easiest to find there."""
    for option in options_of(kind):
        yield _named({option.axis: option})
        yield from map(_named, covering_one(option))


def _named(row: Mapping[str, Option]) -> tuple[str, ModelSpec]:
    return "; ".join(str(each) for each in row.values() if each.edits), combine(row.values())


def _failure(check: Callable[[Subject], None], subject: Subject) -> str | None:
    try:
        check(subject)
    except Exception as error:  # the variant may be anybody's code, and raise anything
        found = " ".join(str(error).split())
        return found if isinstance(error, AssertionError) else f"{type(error).__name__}: {found}"
    return None


def _said(doc: str | None) -> str:
    """The first sentence, in one line."""
    text = " ".join((doc or "").split())
    return text.partition(": ")[0].partition(". ")[0].rstrip(".")


def conforms(spec: ModelSpec) -> None:
    """All checks on one spec. Raises what the first that fails raises."""
    subject = Subject(spec)
    for check in CHECKS:
        check(subject)
