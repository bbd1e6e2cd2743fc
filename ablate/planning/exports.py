"""Prediction of what `ablate export` writes for each arm, before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from ablate.planning.plan import ArmPlan
from evals.reading.causal import obstacle


@dataclass(frozen=True)
class Export:
    """model_type: that of transformers; `ablate` if the arm needs our own modeling file, None if it cannot be exported.
    reason: why no model family of transformers expresses the arm."""

    model_type: str | None
    reason: str


def exports(arms: Sequence[ArmPlan]) -> dict[str, Export]:
    """Exports by arm; empty if transformers is not installed. The first call takes seconds to load transformers."""
    if find_spec("transformers") is None:
        return {}
    from zoo.hf import REMOTE, native  # noqa: PLC0415 (slow to load)

    found = {}
    for arm in arms:
        family, reason = native(arm.spec)
        found[arm.name] = Export(REMOTE if family is None and obstacle(arm.spec) is None else family, reason)
    return found


def export_lines(found: Mapping[str, Export]) -> Iterator[str]:
    """`exports: pre as llama; post, double with ablate's modeling file (…)`."""
    by: dict[str | None, list[str]] = {}
    for arm, each in found.items():
        by.setdefault(each.model_type, []).append(arm)
    if by:
        from zoo.hf import REMOTE  # noqa: PLC0415 (slow to load)

        said = {
            REMOTE: "with ablate's modeling file (trust_remote_code), since no family of transformers fits",
            None: "cannot be exported: ablate's modeling file supports only causal models",
        }
        yield "exports: " + "; ".join(f"{', '.join(arms)} {said.get(kind, f'as {kind}')}" for kind, arms in by.items())
