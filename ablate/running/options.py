"""Options for executing a study's runs, each described once for Python and the command line.

The fields of `Options` define the name, type, default and description of every option. `ablate.run` and similar
functions take them as `**options: Unpack[RunOptions]`, for type checkers; `documented` adds them to the signature and
docstring, and `ablate.commands.add_options` to the command line.
"""

from __future__ import annotations

import functools
import inspect
import shlex
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Literal, ParamSpec, TypedDict, TypeVar

from pydantic import BeforeValidator, model_validator

from ablate.training.execution import Count, Execution, Microbatch
from store.errors import ArgumentError
from zoo.errors import SpecError
from zoo.settings.descriptions import descriptions
from zoo.settings.explain import checked

WIDTH = 120
"""Line width of generated docstrings."""

MARK = " " * 8 + "options: see `ablate.running.options`."
"""Docstring line that the descriptions of the options replace."""

P = ParamSpec("P")
R = TypeVar("R")


def _known(device: object) -> object:
    if device not in ("cpu", "cuda"):
        raise ValueError("expected cpu or cuda")
    return device


Device = Annotated[Literal["cpu", "cuda"], BeforeValidator(_known)]


class Options(Execution):
    """Settings of workers and of the engine that starts them."""

    device: Device | None = None
    """cpu or cuda (default: cuda if there is a GPU)."""
    engine: str = "local"
    """Engine of the runs: local in separate processes, inprocess in this one, slurm as jobs of a Slurm cluster, ray
    as tasks of a Ray cluster."""
    engine_settings: Mapping[str, str] | None = None
    """For slurm, options of sbatch, such as `{"partition": "gpu"}`; for ray, `{"address": …}`."""
    workers: Count | None = None
    """Number of runs at once (default: one for each core or GPU)."""
    workers_per_gpu: Count = 1
    """Number of runs that share a GPU. Small models leave most of it idle, but runs that share a GPU affect each
    other's measured speed."""

    @model_validator(mode="after")
    def _together(self) -> Options:
        if self.shard and self.devices == 1:
            raise SpecError("shard", "needs `devices` of 2 or more")
        if self.devices > 1 and self.workers_per_gpu > 1:
            raise SpecError("devices", "more than 1 excludes `workers_per_gpu` above 1")
        return self

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> Options:
        """Options from a caller's keywords. Raises ArgumentError."""
        try:
            return checked(cls, settings)
        except SpecError as error:
            raise ArgumentError(error.path, error.reason) from error

    @property
    def of_engine(self) -> str:
        """The command-line options of an engine on other machines, for commands that a result suggests."""
        settings = dict(self.engine_settings or {})
        address = ["--address", settings.pop("address")] if "address" in settings else []
        jobs = [word for name, value in settings.items() for word in ("--slurm", f"{name}={value}")]
        return shlex.join(["--engine", self.engine, *address, *jobs])

    @property
    def execution(self) -> Execution:
        """The settings that are sent to workers."""
        return Execution(**{name: getattr(self, name) for name in Execution.model_fields})

    def speed_up(self, at_once: int) -> float:
        """Total speed of `at_once` runs relative to one run on one device. Runs that share a GPU share its FLOP/s."""
        return max(1.0, at_once * self.devices / self.workers_per_gpu)


class PlanOptions(TypedDict, total=False):
    """Options that a plan depends on: fields of `Options`, for type checkers."""

    device: str | None
    engine: str
    engine_settings: Mapping[str, str] | None
    workers: int | None
    workers_per_gpu: int
    microbatch: Microbatch | None
    recompute: bool
    devices: int
    shard: bool


class RunOptions(PlanOptions, total=False):
    """All fields of `Options`, for type checkers."""

    checkpoint_seconds: float
    stall_timeout: float
    profile: bool


def described(name: str) -> str:
    """Description of an option with its default, to be used inside a sentence."""
    field = Options.model_fields[name]
    text = descriptions(Options)[name].removesuffix(".")
    text = text[:1].lower() + text[1:]
    if field.default in (None, False):
        return text
    shown = f"{field.default:g}" if isinstance(field.default, float) else field.default
    return f"{text} (default: {shown})"


def documented(names: Iterable[str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator that adds options to the signature and docstring of a function that takes them as `**options`.

    Calls with other options raise TypeError.
    """

    def document(function: Callable[P, R]) -> Callable[P, R]:
        *own, _ = (signature := inspect.signature(function)).parameters.values()
        shown = signature.replace(parameters=[*own, *map(_parameter, names)])

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            shown.bind(*args, **kwargs)
            return function(*args, **kwargs)

        setattr(call, "__signature__", shown)  # noqa: B010 (functions have no such attribute for mypy)
        if function.__doc__ is not None:  # python -OO has none
            wrap = textwrap.TextWrapper(WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 12)
            entries = (wrap.fill(f"{name}: {described(name)}.") for name in names)
            call.__doc__ = function.__doc__.replace(MARK, "\n".join(entries))
        return call

    return document


def _parameter(name: str) -> inspect.Parameter:
    default, annotation = Options.model_fields[name].default, RunOptions.__annotations__[name].__forward_arg__
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
