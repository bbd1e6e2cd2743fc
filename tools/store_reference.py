"""The reference of stored documents, generated from their types as Markdown.

python -m tools.store_reference > docs/store_documents.md
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import JsonValue

from store.documents import Document, JsonScalar, Part, Unit, _document
from store.extensions import modules_of

MODULES = (
    "run",
    "result",
    "measure",
    "study",
    "study_arm",
    "tuning",
    "claims",
    "data",
)
"""Modules of `store.documents`."""
INTRODUCTION = """# Stored documents

Generated from the types in `store/documents` and in wings by `python -m tools.store_reference`; [the store](store.md)
says where each file lies. A `.json` file holds one document, with its schema version in `schema`; an `.ndjson` file
holds one object per line, and its seal in `seal` if lines are appended. Unknown fields, wrong types, NaN and infinities
are refused on reading."""
WORDS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def reference() -> str:
    """The whole page."""
    own, shared = (importlib.import_module(f"store.documents.{name}") for name in MODULES), [_document]
    modules = [*own, *modules_of("store.documents"), *shared]
    return "\n\n".join([INTRODUCTION, *(part for module in modules for part in _chapter(module))]) + "\n"


def _chapter(module: ModuleType) -> Iterator[str]:
    title, _, rest = inspect.cleandoc(module.__doc__ or "").partition("\n")
    yield f"## {title.rstrip('.')}"
    if rest.strip():
        yield rest.strip()
    # Documents before their parts, otherwise in the order of the source.
    own = [value for value in vars(module).values() if inspect.isclass(value) and value.__module__ == module.__name__]
    models = [value for value in own if issubclass(value, Part) and value is not Part]
    for model in sorted(models, key=lambda model: not issubclass(model, Document)):
        bases = [base for base in model.__bases__ if base not in (Part, Document)]
        inherited = f" Also has the fields of {', '.join(map(_link, bases))}." if bases else ""
        types, meanings = get_type_hints(model, include_extras=True), _meanings(model)
        keys = {name: model.model_fields[name].alias or name for name in meanings}
        rows = [f"| `{keys[name]}` | {_type(types[name])} | {meaning} |" for name, meaning in meanings.items()]
        table = ["", "| field | type | meaning |", "|---|---|---|", *rows] if rows else []
        yield "\n".join([f"### {model.__name__}", "", f"{inspect.cleandoc(model.__doc__ or '')}{inherited}", *table])


def _meanings(model: type[Part]) -> dict[str, str]:
    """Docstrings of the fields that the class itself declares, by field."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(meaning))):
                found[name] = " ".join(meaning.split())
    return found


def _type(hint: Any) -> str:
    """A type in words: `list of number (s) or null`."""
    if hint is JsonValue:
        return "any JSON"
    if hint == JsonScalar:
        return "string, number, boolean or null"
    if get_origin(hint) is not None:
        return _composed(get_origin(hint), get_args(hint))
    return _link(hint) if issubclass(hint, Part) else WORDS[hint]


def _composed(origin: Any, arguments: tuple[Any, ...]) -> str:
    if origin is Annotated:
        units = (f" ({each.name})" for each in arguments[1:] if isinstance(each, Unit))
        return _type(arguments[0]) + "".join(units)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(_type, arguments)))
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    assert origin is dict, origin
    return "object" if arguments[1] is JsonValue else f"object of {_type(arguments[1])}"


def _link(model: type[Part]) -> str:
    return f"[{model.__name__}](#{model.__name__.lower()})"


if __name__ == "__main__":
    print(reference(), end="")
