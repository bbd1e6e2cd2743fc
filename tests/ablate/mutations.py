"""Documents and studies as a slip, a bad disk or an ill-disposed stranger would leave them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

Path = tuple[str | int, ...]

NUMBERS = (-1, 0, 1, 1.5, 10**30, float("inf"), float("nan"), True)
TEXTS = ("", "x", "1e3", "../x", "\0", "é" * 300)
NESTS = (None, [], {}, {"a": 1}, [1], [[]], [{"a": 1}], {"": 1}, {"kind": {"a": 1}}, {"kind": "x"})
VALUES = st.sampled_from((*NUMBERS, *TEXTS, *NESTS))


def paths(value: Any, above: Path = ()) -> Iterator[Path]:
    """Where something is in a document, the document itself left out."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in items:
        yield (*above, key)
        yield from paths(below, (*above, key))


@st.composite
def mutated(draw: st.DrawFn, document: Any) -> Any:
    """One or two values replaced, removed, doubled or moved to another name."""
    found = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 2))):
        *around, last = draw(st.sampled_from(list(paths(found)) or [("",)]))
        here = found
        for key in around:
            here = here[key]
        _change(draw, here, last)
    return found


def _change(draw: st.DrawFn, here: Any, last: str | int) -> None:
    match draw(st.sampled_from(["replace", "replace", "replace", "remove", "rename", "double"])):
        case "replace":
            here[last] = copy.deepcopy(draw(VALUES))  # which the next change may change
        case "remove" if here:
            del here[last]
        case "rename" if isinstance(here, dict):
            here["zz"] = here.pop(last, None)
        case "double" if isinstance(here, list):
            here.append(copy.deepcopy(here[last]))
        case _:
            here[last] = copy.deepcopy(draw(VALUES))  # which the next change may change


def torn(content: bytes) -> st.SearchStrategy[bytes]:
    """A file that was cut, zeroed from some byte on, or of which one bit changed."""
    size = len(content)

    def flipped(place: int) -> bytes:
        return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]

    place = st.integers(0, size - 1)
    return st.one_of(
        place.map(lambda n: content[:n]),
        place.map(lambda n: content[:n] + bytes(size - n)),
        place.map(flipped),
    )
