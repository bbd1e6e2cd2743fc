"""Descriptions of settings and constants, read from the docstrings below fields (also inherited) and assignments."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import pairwise

from pydantic import BaseModel

FUNCTION = re.compile(r"^( *)(?:@.*\n\1)*(?:async )?def .*\n(?:(?:\1 .*|\1\).*|)\n)*", re.MULTILINE)
"""A function or method with its indented body; its signature may end in a line that begins with `)`."""


@cache
def descriptions(cls: type[BaseModel]) -> Mapping[str, str]:
    """Descriptions of a class's fields, by name.

    Read lazily from the source: pydantic would read them whenever a class is defined, at every program start.
    """
    found: dict[str, str] = {}
    for made_of in getattr(cls, "fields_from", ()):
        found |= descriptions(made_of)
    for owner in reversed(cls.__mro__):
        if issubclass(owner, BaseModel) and owner is not BaseModel:
            found |= _own(owner)
    return {name: text for name, text in found.items() if name in cls.model_fields}  # drops class variables


def _own(cls: type[BaseModel]) -> dict[str, str]:
    found = {name: field.description for name, field in cls.model_fields.items() if field.description}
    try:
        classes = classes_in(inspect.getsourcefile(cls) or "", with_functions="<locals>" in cls.__qualname__)
    except (OSError, TypeError):  # a class built from other classes' fields, or a plug-in whose file is gone
        return found
    defined = classes.get(cls.__qualname__)
    for field, below in pairwise(defined.body if defined else ()):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found


@cache
def classes_in(path: str, *, with_functions: bool) -> Mapping[str, ast.ClassDef]:
    """Classes of a file by qualified name. `inspect.getsource` would parse the file again for each class.

    with_functions: include classes inside functions. Without functions, parsing takes a tenth of the time.
    """
    text = "".join([*linecache.getlines(path), "\n"])
    if not with_functions:
        with suppress(SyntaxError):  # FUNCTION cuts strings that have lines at the left margin
            return dict(_classes_of(ast.parse(FUNCTION.sub(r"\1pass\n", text)), ""))
    return dict(_classes_of(ast.parse(text), ""))


def _classes_of(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.ClassDef(name=name):
                yield f"{prefix}{name}", child
                yield from _classes_of(child, f"{prefix}{name}.")
            case ast.FunctionDef(name=name):
                yield from _classes_of(child, f"{prefix}{name}.<locals>.")
            case ast.If() | ast.Try() | ast.With():
                yield from _classes_of(child, prefix)
