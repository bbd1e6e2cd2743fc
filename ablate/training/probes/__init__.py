"""Probes that observe a run during training, one per file: `ablate/training/probes/<name>.py` defines `PROBE`.

Probes never affect training: losses are the same, bit for bit, with and without them.
"""

from __future__ import annotations

from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ablate.training.probes._kinds import Probe
from zoo.settings.axis import Spec
from zoo.settings.explain import unknown
from zoo.settings.registry import member, members


def names() -> list[str]:
    """Every probe, in alphabetical order."""
    return members(__name__)


def load(name: str) -> Probe:
    return cast(Probe, member(__name__, name).PROBE)


def _which(value: Any) -> Any:
    """Names from `all` or a list, sorted, since their order has no effect. Raises ValueError."""
    chosen = names() if value == "all" else value
    if not isinstance(chosen, list | tuple) or not chosen or not all(isinstance(name, str) for name in chosen):
        raise ValueError(f"must be all, or a list of {', '.join(names())}, not {value!r}")
    for name in chosen:
        if name not in names():
            raise ValueError(unknown("probe", name, names()))
        if list(chosen).count(name) > 1:
            raise ValueError(f"a probe is given twice: {name}")
    return tuple(sorted(chosen))


WHICH: JsonSchemaValue = {
    "anyOf": [{"const": "all"}, {"type": "array", "items": {"enum": names()}, "minItems": 1, "uniqueItems": True}]
}


class ProbeSpec(Spec):
    """Probes of a run, and their frequency. Probed steps cost an extra forward pass and a copy of the weights: the time
    is not counted as training, the memory is in the run's peak."""

    every: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Interval between probes, as a share of the steps; the first step, before anything is learnt, and the last are
    always probed."""
    which: Annotated[tuple[str, ...], BeforeValidator(_which), WithJsonSchema(WHICH)] = Field(
        default_factory=lambda: tuple(names())
    )
    """Probes to record: `all`, or a list of names."""

    def due(self, step: int, steps: int) -> bool:
        """Whether 1-based `step` of `steps` is probed."""
        every = max(1, round(self.every * steps))
        return step in (1, steps) or step % every == 0


def short(value: Any) -> Any:
    """Expand `all`, or a list of names, to a map with `which`."""
    return {"which": value} if isinstance(value, str | list | tuple) else value


class Short:
    """Field annotation: adds the short forms to the JSON Schema, for editors."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [*WHICH["anyOf"], handler(schema)]}


Probes = Annotated[ProbeSpec | None, BeforeValidator(short), Short()]
