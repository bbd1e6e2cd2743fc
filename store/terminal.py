"""What a terminal may be sent, since names and texts of others are printed, and streams that are always writable."""

from __future__ import annotations

import codecs
import io
import os
import re
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

_UNUSUAL = re.compile(r"[^\x20-\x7e\n\t]")


def visible(text: str) -> str:
    """Text as a terminal may show it: control characters, marks of direction and others without a glyph are written out
    as JSON does, `\\u001b`, so that a document stays the same."""
    return _UNUSUAL.sub(lambda found: _shown(found[0]), text)


def _shown(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


class _Visible:
    """A stream that writes text as `visible` gives it. `raw` is the stream below, for what moves a cursor itself."""

    def __init__(self, raw: IO[str]) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        self.raw.write(visible(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def raw(stream: Any) -> IO[str]:
    """The stream itself, for tables and bars that send control sequences; their texts must be `visible`."""
    found: IO[str] = stream.raw if isinstance(stream, _Visible) else stream
    return found


@contextmanager
def visible_streams() -> Iterator[None]:
    """Within the block, all that is printed is `visible`."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Visible(before[0]), _Visible(before[1])
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


SPELT_OUT = {
    **dict.fromkeys("−–—─━‐‑", "-"),
    **dict.fromkeys("“”„", '"'),
    **dict.fromkeys("‘’", "'"),
    **dict.fromkeys("\u00a0\u2009\u202f", " "),
    **{"…": "...", "×": "x", "±": "+-", "→": "->", "←": "<-", "≤": "<=", "≥": ">=", "≈": "~", "·": "|", "⏎": "\\n"},
}
"""ASCII replacements for characters in tables and sentences: a minus sign must not become a question mark."""
ERRORS = "ablate.spelt_out"


def make_writable() -> None:
    """Open closed streams on the null device, and replace characters that the terminal's encoding lacks."""
    codecs.register_error(ERRORS, _spelt_out)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 (until the process ends)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ERRORS)


def _spelt_out(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_ascii, error.object[error.start : error.end])), error.end


def _ascii(character: str) -> str:
    """A character in ASCII: `-` for `−`, `e` for `é`, `\\u03b8` for `θ`."""
    letters = SPELT_OUT.get(character) or unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return letters or character.encode("ascii", "backslashreplace").decode()
