"""Long records as an index and one page per entry. An entry begins at a second-level heading.

Links are relative to the record's folder, as in the record itself. A link to a heading of another entry leads to that
entry's page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import PurePosixPath

from markdown.extensions.toc import slugify

HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
ANCHOR = re.compile(r"\]\(#([\w-]+)\)")
MOST = 60
"""Most characters of an entry's file name."""


def entries(path: str, text: str) -> dict[str, str]:
    """Markdown of every entry, by its path on the site."""
    found = list(_entries(path, text))
    homes = {slug(title): page for page, entry in found for title in re.findall(r"^#+ (.+)$", entry, re.MULTILINE)}
    return {page: ANCHOR.sub(partial(_linked, page, homes), entry) for page, entry in found}


def index(path: str, text: str) -> str:
    """The text before the first entry, and links to all entries."""
    folder = PurePosixPath(path).stem
    before, *_ = HEADING.split(text)
    links = (f"- [{title}]({folder}/{PurePosixPath(page).name})" for page, title in _titles(path, text))
    return "\n".join((before, *links, ""))


def slug(title: str) -> str:
    return slugify(title, "-")


def _titles(path: str, text: str) -> Iterator[tuple[str, str]]:
    for title in HEADING.findall(text):
        yield f"{path.removesuffix('.md')}/{slug(title)[:MOST].strip('-')}.md", title


def _entries(path: str, text: str) -> Iterator[tuple[str, str]]:
    """The page of each entry; the entry's heading becomes the page's title."""
    bodies = HEADING.split(text)[2::2]
    for (page, title), body in zip(_titles(path, text), bodies, strict=True):
        yield page, f"# {title}\n{body}"


def _linked(page: str, homes: dict[str, str], link: re.Match[str]) -> str:
    home = PurePosixPath(homes.get(link[1], page))
    return link[0] if str(home) == page else f"]({home.parent.name}/{home.name}#{link[1]})"
