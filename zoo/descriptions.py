"""Descriptions of settings: the docstring below each field, of a class or of one that it extends; and of constants."""

from __future__ import annotations

import ast
import importlib
import inspect
import linecache
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from types import ModuleType

from pydantic import BaseModel


@cache
def descriptions(cls: type[BaseModel]) -> Mapping[str, str]:
    """Descriptions of a class's fields by name.

    They are read from the source when asked for: pydantic would read them as each class is defined, at every start.
    """
    found: dict[str, str] = {}
    for made_of in getattr(cls, "fields_from", ()):
        found |= descriptions(made_of)
    for owner in reversed(cls.__mro__):
        if issubclass(owner, BaseModel) and owner is not BaseModel:
            found |= _own(owner)
    return {name: text for name, text in found.items() if name in cls.model_fields}  # not of class variables


def description_of(module: ModuleType, name: str) -> str:
    """The docstring below a module's assignment to a name, or below that of the module which it imports it from."""
    body = ast.parse("".join(linecache.getlines(module.__file__ or ""))).body
    for node, below in pairwise([*body, ast.Pass()]):
        match node, below:
            case ast.ImportFrom(module=str(origin), names=names), _ if name in [alias.name for alias in names]:
                return description_of(importlib.import_module(origin), name)
            case (
                (ast.AnnAssign(target=ast.Name(id=own)) | ast.Assign(targets=[ast.Name(id=own)])),
                ast.Expr(value=ast.Constant(value=str(text))),
            ) if own == name:
                return " ".join(text.split())
    return ""


def _own(cls: type[BaseModel]) -> dict[str, str]:
    found = {name: field.description for name, field in cls.model_fields.items() if field.description}
    try:
        classes = _classes_in(inspect.getsourcefile(cls) or "")
    except (OSError, TypeError):  # made of others' fields, which have descriptions with them; a plug-in that is gone
        return found
    defined = classes.get(cls.__qualname__)
    for field, below in pairwise(defined.body if defined else ()):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found


@cache
def _classes_in(path: str) -> Mapping[str, ast.ClassDef]:
    """Classes of a file by qualified name. `inspect.getsource` would parse the file again for each of them."""
    return dict(_classes_of(ast.parse("".join(linecache.getlines(path))), ""))


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
