"""Descriptions of settings: the docstring below each field, of a class or of one that it extends."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

from pydantic import BaseModel


@cache
def descriptions(cls: type[BaseModel]) -> Mapping[str, str]:
    """Descriptions of a class's fields by name.

    They are read from the source when asked for: pydantic would read them as each class is defined, at every start.
    """
    found: dict[str, str] = {}
    for owner in reversed(cls.__mro__):
        if issubclass(owner, BaseModel) and owner is not BaseModel:
            found |= _own(owner)
    return {name: text for name, text in found.items() if name in cls.model_fields}  # not of class variables


def _own(cls: type[BaseModel]) -> dict[str, str]:
    found = {name: field.description for name, field in cls.model_fields.items() if field.description}
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError):  # made of others' fields, which have descriptions with them; a plug-in that is gone
        return found
    (defined,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(defined, ast.ClassDef)
    for field, below in pairwise(defined.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found
