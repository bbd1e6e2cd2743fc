"""The templates beside this file, and how they are filled: everything that comes from outside is escaped."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined


@cache
def environment() -> Environment:
    return Environment(
        loader=PackageLoader("reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def source(name: str) -> str:
    """A file beside the templates, as it stands."""
    loader = environment().loader
    assert loader is not None
    return loader.get_source(environment(), name)[0]
