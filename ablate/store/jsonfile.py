"""Documents as files of strict JSON. What does not fit its model is one line: the file, the field, what was expected
there, and the remedy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError, from_json

from ablate.store.documents import Document, Part
from ablate.store.files import StoreError, replacing

AnyDocument = TypeVar("AnyDocument", bound=Document)
AnyPart = TypeVar("AnyPart", bound=Part)

EXPECTED = {
    "float_type": "a number",
    "int_type": "a whole number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a map",
    "model_type": "a map",
    "finite_number": "a finite number",
}
"""What should have been there, by pydantic's type of error."""
LONGEST = 60
"""Characters of a wrong value that are shown."""


def read(path: Path, model: type[AnyDocument], remedy: str) -> AnyDocument | None:
    """The document at `path`; None when it is missing, empty or half-written.

    Raises StoreError on a whole document that does not fit, and says the `remedy`: "remove it, and …".
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    if not _is_strict(content):
        return None
    try:
        document = model.model_validate_json(content)
    except ValidationError as error:
        found = error.errors(include_url=False)
        if any(not each["loc"] for each in found):  # no JSON, or no map: half-written
            return None
        raise StoreError(f"{path}: {_reason(found)}: {remedy}") from error
    if "version" not in document.model_fields_set:
        raise StoreError(f"{path}: {_unknown_version(None)}: {remedy}")
    return document


def records(path: Path, model: type[AnyPart], remedy: str) -> Iterator[AnyPart]:
    """The lines of a file. Raises StoreError on one that does not fit, with its number."""
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            yield model.model_validate_json(line)
        except ValidationError as error:
            raise StoreError(f"{path}:{number}: {_reason(error.errors(include_url=False))}: {remedy}") from error


def write(path: Path, document: Document) -> None:
    """Write one strict JSON document; NaN, infinities and foreign types raise StoreError."""
    with replacing(path) as temporary:
        temporary.write_text(_text(path, document, indent=1), encoding="utf-8")


def write_lines(path: Path, records: Sequence[Part]) -> None:
    """Write one line of strict JSON for each record."""
    with replacing(path) as temporary:
        temporary.write_text("".join(_text(path, each) for each in records), encoding="utf-8")


def _text(path: Path, document: Part, indent: int | None = None) -> str:
    try:
        plain = document.model_dump(by_alias=True, warnings="error")
        return json.dumps(plain, allow_nan=False, ensure_ascii=False, indent=indent) + "\n"
    except (TypeError, ValueError, PydanticSerializationError) as error:
        raise StoreError(f"{path}: not strict JSON: {error}") from error


def _is_strict(content: bytes) -> bool:
    """Whether NaN and infinities, which pydantic takes for numbers, are at most part of texts."""
    if b"NaN" not in content and b"Infinity" not in content:
        return True
    try:
        from_json(content, allow_inf_nan=False)
    except ValueError:
        return False
    return True


def _reason(found: Sequence[ErrorDetails]) -> str:
    """What is wrong, in one line: the version where that is, else the first complaint."""
    version = next((each for each in found if each["loc"] == ("schema",)), None)
    if version is not None:
        return _unknown_version(version["input"])
    first = found[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {_complaint(first)}" if place else _complaint(first)


def _unknown_version(given: object) -> str:
    return f"schema version {given!r}, but this ablate reads version 1"


def _complaint(error: ErrorDetails) -> str:
    if error["type"] == "missing":
        return "is missing"
    if error["type"] == "extra_forbidden":
        return "unknown field"
    expected = EXPECTED.get(error["type"]) or error.get("ctx", {}).get("expected")
    wrong = _shown(error["input"])
    return f"expected {expected}, not {wrong}" if expected else f"{error['msg']}, not {wrong}"


def _shown(value: object) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
