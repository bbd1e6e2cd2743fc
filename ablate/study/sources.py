"""Models that a study takes from elsewhere: those that an arm needs before it is trained, and those that are its base.

Presets are the only ones of the core; wings add the others, as `SOURCES` by the section of an arm and `BASES` by the
key of `base`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

from store.documents import JsonObject
from store.extensions import modules_of
from zoo.presets import preset
from zoo.settings.axis import Spec
from zoo.settings.edits import Edits


class Source(Spec):
    """A trained model that an arm needs: that of another arm with the same seed, or a checkpoint's."""

    arm: str | None = None
    """The other arm."""
    checkpoint: str | None = None
    """The checkpoint's folder."""
    gives_weights: ClassVar[bool] = False
    """Whether the arm starts from its weights, and so keeps the shape of its model where parameters are matched."""

    @property
    def share(self) -> float:
        """Share of the study's budget that the arm spends."""
        return 1.0


@dataclass(frozen=True)
class Base:
    """A model by name or path that a study's base is an edit of. Its functions take the name, and the folder that
    relative paths start from."""

    what: str
    description: str
    model: Callable[[str, Path], Edits]
    """The model at full size. Raises SpecError or AblateError."""
    tokenizer: Callable[[str, Path], JsonObject | None] = lambda name, folder: None
    """Its tokenizer, in the form of `data.tokenizer`. Raises AblateError."""
    sections: Callable[[str], Mapping[str, Edits]] = lambda name: {}
    """Sections of every arm on this base."""


PRESET = Base(
    what="the name of a preset",
    description="Published model or starting point that the base is, by name; other keys of `base` are edits of it.",
    model=lambda name, folder: preset(name).model,
)


@cache
def source_kinds() -> dict[str, type[Source]]:
    """Kinds of sources, by the section of an arm that names them."""
    return {key: kind for wing in modules_of(__name__) for key, kind in wing.SOURCES.items()}


@cache
def base_kinds() -> dict[str, Base]:
    """Kinds of bases, by their key in `base`."""
    return {"preset": PRESET} | {key: base for wing in modules_of(__name__) for key, base in wing.BASES.items()}
