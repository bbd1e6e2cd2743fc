"""The names of `zoo.building_blocks`, as `ablate zoo NAME` shows them: signature, documentation and methods."""

from __future__ import annotations

import ast
import importlib
import inspect
import linecache
import re
import textwrap
from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from types import ModuleType
from typing import TypedDict

from pydantic import BaseModel

from ablate.commands import print_json
from zoo import building_blocks


class BuildingBlock(TypedDict):
    """A building block. methods: the documentation of each public method, by its signature; of an enumeration, what
    each member means."""

    axis: str
    name: str
    signature: str
    doc: str
    methods: dict[str, str]


def names() -> tuple[str, ...]:
    """Names of all building blocks."""
    return tuple(building_blocks.__all__)


def show_block(name: str, as_json: bool) -> None:
    """Print a building block, as text or JSON."""
    found = block(name)
    if as_json:
        print_json(found)
        return
    print(f"{found['axis']}: {found['signature']}\n\n{found['doc']}")
    for signature, doc in found["methods"].items():
        print(f"\n{signature}\n{textwrap.indent(doc, '    ')}".rstrip())


def block(name: str) -> BuildingBlock:
    """Signature, documentation and methods of a building block."""
    value = getattr(building_blocks, name)
    methods: dict[str, str] = {}
    if inspect.isclass(value) and issubclass(value, Enum):
        methods = {member.name: str(member.value) for member in value}
        signature, doc = f"{name} = {' | '.join(methods)}", inspect.getdoc(value) or ""
    elif inspect.isclass(value):
        # The `__init__` that the class or a base in zoo defines, if any: those of torch and pydantic are not shown.
        owners = (each for each in value.__mro__ if each.__module__.startswith("zoo."))
        init = next((vars(each)["__init__"] for each in owners if inspect.isfunction(vars(each).get("__init__"))), None)
        signature = _settings(name, value) if issubclass(value, BaseModel) else _signature(name, init or value)
        doc = "\n\n".join(filter(None, (inspect.getdoc(value), inspect.cleandoc(init.__doc__ or "") if init else "")))
        methods = dict(_methods(value))
    elif inspect.isfunction(value):
        signature, doc = _signature(name, value), inspect.getdoc(value) or ""
    else:
        signature, doc = f"{name} = {_written(value)}", description_of(building_blocks, name)
    return BuildingBlock(axis="building_blocks", name=name, signature=signature, doc=doc, methods=methods)


def _methods(cls: type) -> Iterator[tuple[str, str]]:
    """Signature and documentation of the public methods and properties that a class or its bases in zoo define."""
    for name in dir(cls):
        owner = next((each for each in cls.__mro__ if name in vars(each)), object)
        if name.startswith("_") or not owner.__module__.startswith("zoo."):
            continue
        value, doc = vars(owner)[name], inspect.getdoc(getattr(cls, name, None)) or ""
        if isinstance(value, property):
            yield name, doc
        elif inspect.isfunction(value) or isinstance(value, classmethod | staticmethod):
            yield _signature(name, getattr(cls, name)), doc


def _signature(name: str, value: object) -> str:
    """`name(x: Tensor, heads: int) -> Tensor`, without the quotes that Python puts around annotations that are text."""
    assert callable(value)
    shown = re.sub(r"ForwardRef\(('[^']*')\)", r"\1", str(inspect.signature(value)))
    shown = re.sub(r"(: |-> )'([^']*)'", r"\1\2", shown)
    shown = re.sub(r"^\(self(, )?", "(", shown)
    return f"{name}{shown.removesuffix(' -> None')}"


def _settings(name: str, spec: type[BaseModel]) -> str:
    """A spec with its settings and their defaults."""
    fields = {key: field for key, field in spec.model_fields.items() if key != "kind"}
    return f"{name}({', '.join(key if of.is_required() else f'{key}={of.default!r}' for key, of in fields.items())})"


def _written(value: object) -> str:
    if isinstance(value, frozenset):
        return ", ".join(sorted(str(each) for each in value))
    return re.sub(r"\b(?:[a-z_]+\.)+(?=\w)", "", repr(value))


def description_of(module: ModuleType, name: str) -> str:
    """The docstring below a module's assignment to `name`, following imports of it; empty if there is none."""
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
