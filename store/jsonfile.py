"""Documents as files of strict JSON. A document that does not fit its model raises a StoreError of one line: the file,
the field, the expected value, and the remedy.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError, from_json, to_json

from store import checksum
from store.documents import Document, Part
from store.documents._document import CONTRADICTS
from store.files import StoreError, read_regular, write_text

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
"""Descriptions of the expected value, by pydantic's type of error."""
OTHER_VERSION = "the file is intact, but another version of ablate wrote it: use that version"
LARGEST = 1e150
"""Largest number of a document: squares of it are finite, too."""
EXCEEDS = f"a whole number has more than 64 bits, or a number exceeds {LARGEST:g}"
_LARGE = re.compile(rb"\d{19}"), re.compile(rb"[eE]\+?\d{3,}[\s,\]}]")  # one for both takes twice as long
LONGEST = 60
"""Most characters of a wrong value that a message shows."""


def place_of(path: Path, names: int = 2) -> str:
    """The last `names` parts of a document's path, the same wherever the store is: `3f2a…/result.json`."""
    return "/".join(os.path.abspath(path).rsplit("/", names)[-names:])  # noqa: PTH100 (links stay; every document)


def is_at(path: Path, place: str) -> bool:
    """Whether a document is at the path that it states, possibly through a symbolic link."""
    names = place.count("/") + 1
    return place == place_of(path, names) or place == place_of(path.resolve(), names)


def read(path: Path, model: type[AnyDocument], remedy: str) -> AnyDocument | None:
    """The document at `path`; None when it is missing, empty or half-written.

    Raises StoreError, with the `remedy` ("remove it, and …"), for a complete document that is invalid or misplaced.
    """
    try:
        content = read_regular(path)
    except FileNotFoundError:
        return None
    body, is_whole, place, is_sealed = checksum.unsealed_json(content)
    if not is_whole:
        raise StoreError(f"{path}: its checksum does not match: {remedy}")
    if place is not None and not is_at(path, place):
        raise StoreError(f"{path}: this is {place}, copied to another path: {remedy}")
    if not _is_strict(body):
        return None
    try:
        document = model.model_validate_json(body)
    except ValidationError as error:
        found = error.errors(include_url=False)
        if any(not each["loc"] and each["type"] != CONTRADICTS for each in found):  # no JSON, or no map: half-written
            return None
        reason = _version_reason(found) or _reason(found)
        # If the checksum matches, the file is intact and should not be removed.
        raise StoreError(f"{path}: {reason}: {OTHER_VERSION if is_sealed else remedy}") from error
    if "version" not in document.model_fields_set:
        raise StoreError(f"{path}: {_unknown_version(None)}: {remedy}")
    if _exceeds(document, body):
        raise StoreError(f"{path}: {EXCEEDS}: {remedy}")
    return document


def record(line: bytes, model: type[AnyPart], where: str, remedy: str) -> AnyPart:
    """One parsed line of a log. Raises StoreError, which names it as `where`, if it does not fit the model."""
    try:
        found = model.model_validate_json(line)
    except ValidationError as error:
        raise StoreError(f"{where}: {_reason(error.errors(include_url=False))}: {remedy}") from error
    if _exceeds(found, line):
        raise StoreError(f"{where}: {EXCEEDS}: {remedy}")
    return found


def _exceeds(part: Part, text: bytes) -> bool:
    """Whether a whole number does not fit the columns of a frame, or a number is too large to compute with. Few texts
    have so many digits in a row, or such exponents."""

    def exceeds(value: object) -> bool:
        if isinstance(value, Mapping):
            return any(map(exceeds, value.values()))
        if isinstance(value, list | tuple):
            return any(map(exceeds, value))
        if isinstance(value, float):
            return abs(value) > LARGEST
        return isinstance(value, int) and not -(2**63) <= value < 2**63

    return any(large.search(text) for large in _LARGE) and exceeds(part.model_dump())


def write(path: Path, document: Document, place: str | None = None) -> None:
    """Write one strict JSON document, sealed with its path; NaN, infinities and foreign types raise StoreError."""
    write_text(path, sealed(path, document, place or place_of(path)))


def sealed(path: Path, document: Document, place: str) -> str:
    """The text of a document, sealed with its path `place`. path: named in the StoreError if it is not strict JSON."""
    return checksum.sealed_json(_text(path, document, indent=1), place)


def write_lines(path: Path, records: Sequence[Part]) -> None:
    """Write one line of strict JSON for each record."""
    write_text(path, "".join(_text(path, each) for each in records))


def _text(path: Path, document: Part, indent: int | None = None) -> str:
    try:
        plain = document.model_dump(by_alias=True, warnings="error")
        text = json.dumps(plain, allow_nan=False, ensure_ascii=False)  # strict, but slow with indents
        return (text if indent is None else to_json(plain, indent=indent).decode()) + "\n"
    except (TypeError, ValueError, PydanticSerializationError) as error:
        raise StoreError(f"{path}: not strict JSON: {error}") from error


def _is_strict(content: bytes) -> bool:
    """Whether NaN and infinities, which pydantic accepts as numbers, occur at most inside strings."""
    if b"NaN" not in content and b"Infinity" not in content:
        return True
    try:
        from_json(content, allow_inf_nan=False)
    except ValueError:
        return False
    return True


def _version_reason(found: Sequence[ErrorDetails]) -> str | None:
    """The problem with a document's schema version, if any, which causes the others."""
    for each in found:
        if each["loc"] == ("schema",):
            return _unknown_version(each["input"])
        if each["type"] == "missing" and len(each["loc"]) == 1 and "schema" not in each["input"]:
            return _unknown_version(None)
    return None


def _reason(found: Sequence[ErrorDetails]) -> str:
    """The first complaint, in one line."""
    first = found[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {_complaint(first)}" if place else _complaint(first)


def _unknown_version(given: object) -> str:
    return f"schema version {given!r}, but this ablate reads version 1"


def _complaint(error: ErrorDetails) -> str:
    if error["type"] == CONTRADICTS:
        return error["msg"]
    if error["type"] == "missing":
        return "is missing"
    if error["type"] == "json_invalid" or not error["loc"]:
        return "expected a JSON object"
    if error["loc"] == ("checksum",):  # at the end of the file, it would have been removed from the fields
        return "does not match the file"
    if error["type"] == "extra_forbidden":
        return "unknown field"
    expected = EXPECTED.get(error["type"]) or error.get("ctx", {}).get("expected")
    wrong = "null" if error["input"] is None else repr(error["input"])
    wrong = wrong if len(wrong) <= LONGEST else f"{wrong[: LONGEST - 1]}…"
    return f"expected {expected}, not {wrong}" if expected else f"{error['msg']}, not {wrong}"
