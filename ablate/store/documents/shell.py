"""Parts of the commands that documents and messages suggest, as a shell reads them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from ablate.store import DEFAULT_STORE


def from_here(path: Path) -> str:
    """A path relative to the current folder, where it lies below it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def store_option(root: Path) -> str:
    """`--store DIR`, empty for the one that commands take by themselves."""
    place = from_here(root.absolute())
    return "" if place == DEFAULT_STORE else f"--store {shlex.quote(place)}"


def plugin_options(files: Iterable[str | os.PathLike[str]]) -> str:
    """`--plugin FILE` for each file: a suggested command needs those that the command before it had."""
    return " ".join(f"--plugin {shlex.quote(from_here(Path(file)))}" for file in files)


def budget_option(kind: str, amount: float) -> str:
    """The option that sets a budget, to three digits."""
    return f"--set budget.{kind}={float(f'{amount:.3g}'):g}"


def seeds_option(seeds: Iterable[int]) -> str:
    """The option that asks for these seeds."""
    return f'--set "seeds=[{",".join(map(str, seeds))}]"'


def fresh_seeds(last: int, count: int) -> str:
    """The option that asks for so many seeds beyond the last one that was used."""
    return seeds_option(range(last + 1, last + 1 + count))
