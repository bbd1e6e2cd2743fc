"""Features that are plug-ins: settings that the spec of a model or of a block has beside its own.

A feature's setting is named after its file. A feature of this project is a field of the spec, which types it; one that
lies outside (`zoo.settings.registry`) becomes a field when the spec's class is defined, and is the same from there on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import Field, create_model

from zoo.settings.axis import Spec, is_off
from zoo.settings.field_tags import ValuesInTests
from zoo.settings.registry import members, only_class, plugins_of, taken

S = TypeVar("S", bound=Spec)


def with_features(package: str, base: type[Spec]) -> Callable[[type[S]], type[S]]:
    """Class decorator: adds a setting for each plug-in of a folder of features, all of which extend `base`. Without
    plug-ins, the class stays as it is. Raises PluginError for a name that the class uses, or a file without exactly one
    feature."""

    def extended(owner: type[S]) -> type[S]:
        fields: dict[str, Any] = {}
        members(package)  # refuses names of files in the folder, and from now on further plug-ins
        for name, plugin in plugins_of(package).items():
            if name in owner.model_fields or hasattr(owner, name):
                raise taken(plugin)
            module = plugin.load()
            feature = only_class(module, base)
            said = " ".join((module.__doc__ or feature.__doc__ or "").partition("\n\n")[0].split())
            off = Field(default=None, exclude_if=is_off, description=f"{said} Null for none.".lstrip())
            fields[name] = (Annotated[feature | None, ValuesInTests(*getattr(feature, "examples", ({},)))], off)
        if not fields:
            return owner
        return create_model(
            owner.__name__, __base__=owner, __module__=owner.__module__, __doc__=owner.__doc__, **fields
        )

    return extended
