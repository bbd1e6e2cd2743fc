"""Parts of the commands that documents and messages suggest, quoted for a shell."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from store import DEFAULT_STORE


def from_here(path: Path) -> str:
    """A path, relative to the working directory if below it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def store_option(root: Path) -> str:
    """`--store DIR`; empty for the default store."""
    place = from_here(root.absolute())
    return "" if place == DEFAULT_STORE else f"--store {shlex.quote(place)}"


def plugin_options(files: Iterable[str | os.PathLike[str]]) -> str:
    """`--plugin FILE` for each file: a suggested command needs the plug-ins of the command before it."""
    return " ".join(f"--plugin {shlex.quote(from_here(Path(file)))}" for file in files)


def budget_option(kind: str, amount: float) -> str:
    """The option that sets a budget, to three significant digits; rounded up, since less may not be enough."""
    unit = 10.0 ** (math.floor(math.log10(amount)) - 2)
    return f"--set budget.{kind}={math.ceil(amount / unit * (1 - 1e-9)) * unit:g}"


def seeds_option(seeds: Iterable[int]) -> str:
    """The option that sets these seeds."""
    return f'--set "seeds=[{",".join(map(str, seeds))}]"'


def fresh_seeds(last: int, count: int) -> str:
    """The option that sets the `count` seeds after `last`, the last one used."""
    return seeds_option(range(last + 1, last + 1 + count))
