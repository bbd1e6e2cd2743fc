"""Make the standard streams writable wherever a command runs."""

from __future__ import annotations

import codecs
import io
import os
import sys
import unicodedata
from pathlib import Path

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
