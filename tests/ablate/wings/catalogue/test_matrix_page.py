"""The compatibility matrix as a page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from ablate.wings.catalogue.matrix_page import render_matrix

DOCUMENT = {
    "axes": {"norm": ["layer", "<b>rms</b>"], "mixer": ["full", "latent"], "heads": ["2", "1"]},
    "conflicts": {
        "block.heads: latent has <none>": [["mixer", "latent", "heads", "2"], ["mixer", "latent", "heads", "1"]],
        "no": [["norm", "layer", "mixer", "full"]],
    },
}


class Table(HTMLParser):
    """The text of each cell of the body, row by row."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.feed(page.partition("<tbody>")[2].partition("</tbody>")[0])

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag == "td":
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if data.strip().isdigit() and self.rows[-1]:
            self.rows[-1][-1] = data


def test_each_refused_pair_shows_its_reason_both_ways() -> None:
    rows = Table(render_matrix(**DOCUMENT)).rows
    assert rows == [
        ["", "", "2", "", "", ""],
        ["", "", "", "", "", ""],
        ["2", "", "", "", "", ""],
        ["", "", "", "", "1", "1"],
        ["", "", "", "1", "", ""],
        ["", "", "", "1", "", ""],
    ]


def test_the_page_counts_says_why_and_escapes() -> None:
    page = render_matrix(**DOCUMENT)
    assert "6 choices on 3 axes make 12 pairs. 9 of them can be combined; 3 are refused, for 2 reasons." in page
    assert "block.heads: latent has &lt;none&gt;" in page
    assert "mixer latent with heads 2, 1" in page
    assert "<b>rms" not in page


def test_the_page_stands_alone_and_has_a_dark_mode() -> None:
    page = render_matrix(**DOCUMENT)
    assert not re.search(r"(src|href)=\"(?!#|data:)", page)
    assert "<script" not in page
    assert "prefers-color-scheme: dark" in page
