"""Parts that all stored documents share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue
from pydantic_core import PydanticCustomError

JsonScalar: TypeAlias = str | int | float | bool | None
JsonObject: TypeAlias = dict[str, JsonValue]


CONTRADICTS = "contradicts"
"""Type of the error of a document whose fields contradict each other; its message is complete."""


def _time(text: str) -> str:
    """The text, if it is a time that every reader can convert and compare."""
    try:
        if (found := datetime.fromisoformat(text)).tzinfo is not None:
            found.astimezone(UTC)  # out of range on the first and the last day of all
            return text
    except (ValueError, OverflowError):
        pass
    raise PydanticCustomError("time", "expected an ISO 8601 time with a time zone")


Time: TypeAlias = Annotated[str, AfterValidator(_time)]


@dataclass(frozen=True)
class Unit:
    """Field annotation: the unit of a number."""

    name: str


Seconds: TypeAlias = Annotated[float, Unit("s")]
Parameters: TypeAlias = Annotated[int, Field(ge=0)]
Bytes: TypeAlias = Annotated[int, Unit("bytes"), Field(ge=0)]
Tokens: TypeAlias = Annotated[int, Unit("tokens"), Field(ge=0)]
Flops: TypeAlias = Annotated[float, Unit("FLOP"), Field(ge=0)]
FlopsPerToken: TypeAlias = Annotated[float, Unit("FLOP/token"), Field(ge=0)]
BytesPerToken: TypeAlias = Annotated[float, Unit("bytes/token"), Field(ge=0)]
Nats: TypeAlias = Annotated[float, Unit("nats per scored target")]
NatsPerToken: TypeAlias = Annotated[float, Unit("nats/token")]
BitsPerByte: TypeAlias = Annotated[float, Unit("bits/byte")]
Percent: TypeAlias = Annotated[float, Unit("%")]


def is_none(value: object) -> bool:
    """`Field(exclude_if=is_none)` leaves a null field out of JSON, so digests from before the field stay valid."""
    return value is None


class Part(BaseModel):
    """A frozen part of a document: unknown fields, wrong types, NaN and infinities are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)


class Document(Part):
    """A file of the store. On disk two fields follow those of the model: `file`, its path within the store, and
    `checksum`, the SHA-256 of the text without that line."""

    version: Literal[1] = Field(default=1, alias="schema")
    """Version of the document's schema."""


class Quartiles(Part):
    """Median and quartiles, linearly interpolated."""

    median: float
    """Half of the values are below."""
    q25: float
    """A quarter of the values are below."""
    q75: float
    """Three quarters of the values are below."""


class GpuState(Part):
    """A GPU's sensors under load, read once a second. A speed holds for the clock at which it was measured."""

    clock_mhz: Annotated[Quartiles, Unit("MHz")]
    """Clock of its multiprocessors."""
    power_watts: Annotated[Quartiles, Unit("W")]
    """Power draw."""
    celsius: Annotated[float, Unit("°C")]
    """Highest temperature."""
    slowed_by: Annotated[dict[str, float], Unit("share")]
    """Share of the time in which each cause throttled its clock."""
    samples: int
    """Number of readings."""


class Environment(Part):
    """The software and machine that wrote a document."""

    python: str
    """Version of Python."""
    torch: str
    """Version of torch."""
    ablate: str
    """Version of this project."""
    git_commit: str | None
    """Commit of the project's checkout; null without one."""
    git_dirty: bool | None
    """Whether the checkout had uncommitted changes."""
    device: str
    """Name of the processor or the GPU."""
    threads: int
    """Threads of the process."""
    platform: str
    """Operating system."""
