"""All checks on one variant, alone and with every choice of the other axes that it can be combined with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import torch

from zoo.conformance.checks import CHECKS, Check, shape
from zoo.conformance.combinations import covering_kind
from zoo.conformance.matrix import SMALL, AxisOption, axes, combine
from zoo.conformance.subject import NOT_APPLICABLE, CheckSubject
from zoo.errors import SpecError
from zoo.init import Linear
from zoo.settings.registry import place_in_plugin
from zoo.site import LayerSite
from zoo.spec import ModelSpec

D_MODEL = int(SMALL["d_model"])
"""Width of the models under test."""


@dataclass
class CheckResult:
    """Result of one check: the number of models that it applies to, and for each failure the model and the reason."""

    check: str
    property: str
    models: int = 0
    tried: bool = False
    """False if every model failed an earlier check."""
    failures: list[tuple[str, str]] = field(default_factory=list)


def options_of(name: str) -> list[AxisOption]:
    """The axis options of a variant, on every axis that has it, or those of a feature or another setting. Several
    options can have the same variant with other settings."""
    every = (option for of in axes().values() for option in of)
    variants = [option for option in every if name in _kinds(option)]
    return variants or [option for option in axes().get(name, ()) if option.edits]


def checkable() -> set[str]:
    """Names of the variants that are parts of a model."""
    return {kind for of in axes().values() for option in of for kind in _kinds(option)}


def _kinds(option: AxisOption) -> list[str]:
    return [str(value["kind"]) for value in option.edits.values() if isinstance(value, dict) and "kind" in value]


def check_variant(kind: str, say: Callable[[str], None] = lambda _: None, quick: bool = False) -> list[CheckResult]:
    """Run every check on every model with the variant. `say` first receives each model's name, which lists its choices.
    quick: only on the variant by itself, at each of its examples; these models are tested thoroughly.

    A model that fails `shape` skips the other checks, which it would fail too. The run ends after the simplest model if
    that fails a check, and after the first whose forward pass raises an error: further models would fail alike.
    """
    findings = {check: CheckResult(check.__name__, _said(check.__doc__)) for check in CHECKS}
    alone = list(_alone(kind))
    models = [*alone, *([] if quick else map(_named, covering_kind(options_of(kind))))]
    for number, (name, spec) in enumerate(models, 1):
        say(f"{number}/{len(models)}  {name}")
        subject = CheckSubject(spec, thorough=number <= len(alone))
        failed = False
        for check, finding in findings.items():
            failed |= not _add(finding, check, subject, name)
            if failed and check is shape:
                break
        if not failed or number == len(models):
            continue
        raises = not _runs(subject)
        if raises or number == 1:
            why = "its forward pass raises an error" if raises else "others would fail in the same way as the simplest"
            say(f"stopped after {number} of {len(models)} models: {why}")
            break
    return list(findings.values())


def _add(finding: CheckResult, check: Check, subject: CheckSubject, model: str) -> bool:
    """Run a check and add the outcome. False if the check failed."""
    finding.tried = True
    try:
        finding.models += check(subject) != NOT_APPLICABLE
    except Exception as error:  # the variant may be third-party code, and raise anything
        reason = " ".join(str(error).split())
        if not isinstance(error, AssertionError):
            reason = f"{type(error).__name__}: {reason}{place_in_plugin(error)}"
        finding.models += 1
        finding.failures.append((model, reason))
        return False
    return True


def _runs(subject: CheckSubject) -> bool:
    tokens, given = subject.read(1)
    try:
        with torch.no_grad():
            subject.model(tokens, **given)
    except Exception:  # as above
        return False
    return True


def notes_on(kind: str) -> list[str]:
    """Advice on a property that no check can decide: whether the value projection is marked as such."""
    layers = [layer.mixer for option in options_of(kind) for layer in combine([option]).layers]
    attending = {mixer.kind: mixer for mixer in layers if mixer.kind == kind and mixer.cached()}
    notes = []
    for layer in (mixer.build(LayerSite(D_MODEL, 0, 1)) for mixer in attending.values()):
        linears = [module for module in layer.modules() if isinstance(module, Linear)]
        if linears and not any(module.values for module in linears):
            lacking = f"no Linear of {type(layer).__name__} has values=True"
            notes.append(f"{lacking}: DeepNorm does not scale the initial weights of its value projection")
    return notes


def _alone(kind: str) -> Iterator[tuple[str, ModelSpec]]:
    """Models with a variant and all else at its default, by name: there, a mistake is easiest to find."""
    options = options_of(kind)
    yield from (_named({option.axis: option}) for option in options)
    for option in options[-1:]:
        # The default settings, which the examples may not have, unless the small model's sizes do not fit them.
        parts = {key: value for key, value in option.edits.items() if isinstance(value, dict)}
        edits = {**option.edits, **{key: {"kind": kind} if "kind" in value else {} for key, value in parts.items()}}
        with suppress(SpecError):
            if all(edits != each.edits for each in options):
                yield _named({option.axis: replace(option, name=f"{kind} (defaults)", edits=edits)})


def _named(row: Mapping[str, AxisOption]) -> tuple[str, ModelSpec]:
    return "; ".join(str(each) for each in row.values() if each.edits), combine(row.values())


def _said(doc: str | None) -> str:
    """The first sentence of a docstring, up to a colon, in one line."""
    text = " ".join((doc or "").split())
    return text.partition(": ")[0].partition(". ")[0].rstrip(".")


def conforms(spec: ModelSpec) -> None:
    """Run all checks on one spec. Raises the error of the first that fails."""
    subject = CheckSubject(spec)
    for check in CHECKS:
        check(subject)
