"""What `ablate export` would write for each arm of a plan, before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec

from ablate.planning.plan import ArmPlan
from evals.reading.passes import obstacle
from store.documents import JsonObject


def exports(arms: Sequence[ArmPlan]) -> dict[str, JsonObject]:
    """Exports by arm: the model_type of transformers (`ablate` with our own modeling file, or null), and why no family
    fits. Empty if transformers is not installed. The first call takes seconds to load it."""
    if find_spec("transformers") is None:
        return {}
    from zoo.hf import REMOTE, native  # noqa: PLC0415 (slow to load)

    found: dict[str, JsonObject] = {}
    for arm in arms:
        family, reason = native(arm.spec)
        kind = REMOTE if family is None and obstacle(arm.spec) is None else family
        found[arm.name] = {"model_type": kind, "reason": reason or None}
    return found


def lines(found: Mapping[str, JsonObject]) -> Iterator[str]:
    """`exports: pre as llama; post, double with ablate's modeling file (…)`."""
    by: dict[object, list[str]] = {}
    for arm, each in found.items():
        by.setdefault(each["model_type"], []).append(arm)
    if by:
        from zoo.hf import REMOTE  # noqa: PLC0415 (slow to load)

        said: dict[object, str] = {
            REMOTE: "with ablate's modeling file (trust_remote_code), since no family of transformers fits",
            None: "cannot be exported: ablate's modeling file supports only causal models",
        }
        yield "exports: " + "; ".join(f"{', '.join(arms)} {said.get(kind, f'as {kind}')}" for kind, arms in by.items())
