"""The sources and documentation of the running Python's standard library."""

from __future__ import annotations

import ast
import os
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ablate.data.sources import TextSource
from store.errors import DataError

SUFFIXES = {".py", ".txt", ".rst"}
# Installed packages, caches, build settings and compiled modules belong to the machine, not to the library; its tests
# are not installed everywhere and are full of data; encodings and entities are generated tables.
EXCLUDED = re.compile(
    r"site-packages|dist-packages|__pycache__|config-.*|lib-dynload|_sysconfigdata.*"
    r"|test|tests|idle_test|encodings|entities\.py|stringprep\.py"
)
TOPICS = "pydoc_data/topics.py"


class StdlibSource(TextSource):
    """Real text, most of it written by people, that every machine has: code, docstrings and the language reference.

    Generated tables (such as character maps) are left out. Each `help()` topic of pydoc, a chapter of the language
    reference, is a document. Python versions differ in content, hence in hash.
    """

    source: Literal["stdlib"] = "stdlib"
    # The documents are few and large, and the effect of a seed differs between them: averaging it out takes many.
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of the bytes held out; larger than for other text, as a document has 14 kB on average."""

    def documents(self, base: Path) -> Iterator[str]:
        root = Path(sysconfig.get_path("stdlib"))
        found = []
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if not EXCLUDED.fullmatch(name)]
            found += [
                (Path(folder) / name).relative_to(root).as_posix()
                for name in names
                if Path(name).suffix in SUFFIXES and not EXCLUDED.fullmatch(name)
            ]
        files = sorted(found)
        if not files:
            raise DataError(
                f"this Python has no library sources under {root}: use data.source=files with your own text"
            )
        for relative in files:
            yield from _documents(root / relative, relative)


def _documents(path: Path, relative: str) -> Iterator[str]:
    content = path.read_bytes()
    try:
        text = content.decode()
    except UnicodeDecodeError:  # a few sources declare another encoding
        return
    if relative == TOPICS:
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
                topics: dict[str, str] = ast.literal_eval(node.value)
                yield from (topics[name] for name in sorted(topics))
    else:
        yield text
