"""Extraction of prose from files, as paragraphs of plain text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from html.parser import HTMLParser

PUNCTUATION = str.maketrans(
    {"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "`": "'", "´": "'", "—": "--", "–": "-", "−": "-", "…": "..."}
    | dict.fromkeys("*_•\ufeff", "")
    | {"\u00a0": " "}
)
"""One spelling of quotes and dashes, in which sources differ; marks of emphasis and footnotes are removed."""
VERSE_WIDTH = 0.8
"""A block is verse if all its lines are shorter than this share of the usual width."""
LEAST_LETTERS = 0.7
"""Share of letters and spaces below which a paragraph counts as a table."""
LEAST_HTML = 120
"""Fewest characters of an HTML paragraph; shorter ones are captions, list items and navigation."""
LEAST_ENTRY = 200
"""Fewest characters of a dictionary paragraph, for the same reason."""
CODE = re.compile(r"[\[\]<>{}|\\@=_^#*`~→]|\(\)|https?:|www\.|ftp:")
"""Matches that, in pages and dictionaries, occur only in paragraphs about code or URLs."""
BRACKETED = re.compile(
    r"\[(?:Illustration|Footnote|Greek|Transcriber|[Aa]pplause|[Ll]aughter|Inaudible|[Ss]ee APP|p\.\d+|[A-Z0-9]\]"
    r"|[^\]]*(?:in person before|audience|White House correction))[^\]]*\]?|\((?:Applause|Laughter)\.?\)"
    r"|\{(?:\d+|Some editions[^}]*)\}"
)
LONGEST_HEADING = 50
SPEAKER = re.compile(r"^The President\. ")


def wrapped(text: str) -> Iterator[str]:
    """Paragraphs of hard-wrapped text, separated by blank lines. Verse keeps its line breaks."""
    blocks = [
        [line.strip() for line in block.split("\n") if line.strip()]
        for block in re.split(r"\n\s*\n", text.replace("\r\n", "\n"))
    ]
    widths = sorted(len(line) for lines in blocks for line in lines)
    usual = widths[len(widths) * 3 // 4] if widths else 0
    for lines in blocks:
        verse = len(lines) > 1 and max(map(len, lines)) < VERSE_WIDTH * usual
        yield ("\n" if verse else " ").join(lines)


def unwrapped(text: str) -> Iterator[str]:
    """Paragraphs of text with one paragraph per line."""
    yield from text.split("\n")


def entries(text: str) -> Iterator[str]:
    """Dictionary paragraphs that are long enough to be prose, without the braces around references."""
    for paragraph in wrapped(text):
        bare = re.sub(r"^(?:\d+\. )?(?:\[[^\]]*\] )?|[{}]", "", paragraph)
        if len(bare) >= LEAST_ENTRY and not bare.startswith(":") and not CODE.search(bare):
            yield bare


def html(text: str) -> Iterator[str]:
    """Long paragraphs of a web page that are not about code."""
    page = _Page()
    page.feed(text)
    page.close()
    for paragraph in page.paragraphs():
        if len(paragraph) >= LEAST_HTML and paragraph[-1] in ".!?\"')”" and not CODE.search(paragraph):
            yield paragraph


class _Page(HTMLParser):
    """Parser that splits a page's text at tags that begin or end a paragraph."""

    BREAKS = frozenset(
        ("p", "div", "td", "th", "li", "ul", "ol", "dl", "dt", "dd", "br", "hr", "blockquote", "pre", "tr", "table")
    ) | {f"h{level}" for level in range(1, 7)}
    SKIPPED = frozenset(("script", "style", "pre", "svg", "title", "select", "button"))

    def __init__(self) -> None:
        super().__init__()
        self._blocks: list[list[str]] = [[]]
        self._skipped = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._skipped += tag in self.SKIPPED
        if tag in self.BREAKS:
            self._blocks.append([])

    def handle_endtag(self, tag: str) -> None:
        self._skipped = max(0, self._skipped - (tag in self.SKIPPED))
        if tag in self.BREAKS:
            self._blocks.append([])

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self._blocks[-1].append(data)

    def paragraphs(self) -> Iterator[str]:
        return (" ".join("".join(block).split()) for block in self._blocks)


FORMATS: dict[str, Callable[[str], Iterator[str]]] = {
    "wrapped": wrapped,
    "unwrapped": unwrapped,
    "entries": entries,
    "html": html,
}


def prose(text: str, kind: str) -> list[str]:
    """Clean paragraphs of a file in one of `FORMATS`, without tables and without the next chapter's heading."""
    found = []
    for paragraph in FORMATS[kind](text):
        bare = SPEAKER.sub("", BRACKETED.sub("", unicodedata.normalize("NFC", paragraph)))
        clean = re.sub(r"[ \t]+", " ", bare.translate(PUNCTUATION)).strip()
        letters = sum(character.isalpha() or character in " \n" for character in clean)
        if clean and letters >= LEAST_LETTERS * len(clean):
            found.append(clean)
    while len(found) > 1 and found[-1].isupper() and len(found[-1]) < LONGEST_HEADING:
        found.pop()
    return found
