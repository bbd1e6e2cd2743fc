"""The shipped prose: its provenance is complete, it has no markup, and no author is on both sides of the split."""

from __future__ import annotations

import json
import lzma
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pydantic
import pytest

from ablate.data import identify, parse, prepare
from ablate.data.sources import prose
from ablate.data.splitting import survey
from tests.test_imports import ROOT
from tools.prose import cleaning

FOLDER = ROOT / "ablate" / "data" / "prose"
ABOUT: dict[str, Any] = json.loads((FOLDER / "books.json").read_text(encoding="utf-8"))
BOOKS: list[dict[str, Any]] = ABOUT["books"]
ROWS: list[dict[str, str]] = [
    json.loads(line) for line in lzma.decompress((FOLDER / "documents.jsonl.xz").read_bytes()).decode().splitlines()
]
AUTHOR_OF = {book["book"]: book["author"] for book in BOOKS}
WORDS = 13


def read(**settings: object) -> list[str]:
    return list(parse({"source": "prose", **settings}).documents(Path()))


def given(**settings: object) -> list[str]:
    texts = parse({"source": "prose", **settings}).held_out(Path())  # type: ignore[attr-defined]
    return list(texts)


def repeated(texts: list[str], elsewhere: list[str]) -> float:
    """Share of the 13-grams of `texts` that are in `elsewhere`."""
    own = Counter(gram for text in texts for gram in grams(text))
    found = {gram for text in elsewhere for gram in grams(text) if gram in own}
    return sum(own[gram] for gram in found) / own.total()


def grams(text: str) -> list[str]:
    words = re.findall(r"\w+", text.lower())
    return [" ".join(words[start : start + WORDS]) for start in range(len(words) - WORDS + 1)]


def test_every_document_is_of_a_book_whose_source_and_licence_are_told() -> None:
    for book in BOOKS:
        texts = [row["text"] for row in ROWS if row["book"] == book["book"]]
        assert (book["documents"], book["bytes"]) == (len(texts), sum(len(text.encode()) for text in texts)), book
        assert book["title"] and book["author"] and 1600 < book["year"] < 2030
        assert book["licence"].startswith("public domain: ")
        died = re.search(r"author died (\d+)", book["licence"])
        assert died is None or int(died[1]) <= 1955
        package = ABOUT["packages"][book["package"]]
        assert package["version"] in package["file"] and package["licence"] and package["registry"]
        assert re.fullmatch("[0-9a-f]{64}", package["sha256"])
    assert len(AUTHOR_OF) == len(BOOKS) and {row["book"] for row in ROWS} == set(AUTHOR_OF)


def test_the_text_is_large_enough_and_its_file_small_enough() -> None:
    assert (FOLDER / "documents.jsonl.xz").stat().st_size <= 8_000_000
    sizes = [len(row["text"].encode()) for row in ROWS]
    assert 10_000_000 < sum(sizes) < 30_000_000 and max(sizes) < 210_000
    largest = Counter[str]()
    for book in BOOKS:
        largest[book["author"]] += book["bytes"]
    assert len(largest) > 50 and max(largest.values()) < 0.15 * sum(sizes)


def test_held_out_authors_wrote_nothing_of_the_training_text() -> None:
    authors = {side: {book["author"] for book in BOOKS if book["held_out"] is side} for side in (True, False)}
    assert len(authors[True]) >= 5 and not authors[True] & authors[False]
    text_of = {row["text"]: AUTHOR_OF[row["book"]] for row in ROWS}
    assert {text_of[text] for text in given()} == authors[True]
    assert {text_of[text] for text in read()} == authors[False]
    assert len(given()) + len(read()) == len(ROWS) == len(text_of)
    found = survey(parse("prose"), Path())
    assert 0.03 < 1 - found.bytes.train / found.bytes.total < 0.05
    assert found.bytes.test > 300_000, "131,072 tokens, which a final loss is of, are 340 kB or so"


@pytest.mark.slow
def test_held_out_passages_are_not_in_the_training_text() -> None:
    assert repeated(given(), read()) < 0.001


MARKUP = {
    "tags": r"</?[a-zA-Z]+[^>]*>",
    "entities": r"&[a-z]+;(?! )",
    "emphasis": r"[*_`]",
    "addresses": r"https?:|www\.",
    "notes": r"\{|\}|\[Footnote|\[Illustration|\[[Aa]pplause",
    "licences": r"(?i)gutenberg|\betext|copyright (?:\(c\)|©|19|20)",
    "spaces": r"  |\t|\r",
    "verse numbers": r"\d+:\d+[^\n]+\n\d+:\d+",
}


@pytest.mark.parametrize("kind", MARKUP)
def test_it_is_prose_without_markup(kind: str) -> None:
    found = [match[0] for row in ROWS for match in re.finditer(MARKUP[kind], row["text"])]
    assert not found, found[:5]


def test_lines_are_paragraphs() -> None:
    paragraphs = [each for row in ROWS for each in row["text"].split("\n\n")]
    assert all(paragraph == paragraph.strip() != "" for paragraph in paragraphs)
    assert sum("\n" in paragraph for paragraph in paragraphs) < 0.02 * len(paragraphs), "only verse has short lines"
    ends = Counter(paragraph[-1] for paragraph in paragraphs if len(paragraph) > 200)
    assert sum(ends[end] for end in ".!?\"':;)-,") > 0.99 * ends.total()


def test_a_limit_takes_the_first_documents_of_many_authors_and_the_same_held_out_text() -> None:
    first = read(limit=1_000_000)
    size = sum(len(text.encode()) for text in first)
    assert read()[: len(first)] == first and 1_000_000 <= size < 1_000_000 + len(first[-1].encode())
    text_of = {row["text"]: AUTHOR_OF[row["book"]] for row in ROWS}
    assert len({text_of[text] for text in first}) > 10
    assert given(limit=1_000_000) == given()


def test_a_share_to_hold_out_is_refused() -> None:
    with pytest.raises(pydantic.ValidationError, match="validation_fraction: prose always holds out the same authors"):
        parse({"source": "prose", "validation_fraction": 0.2})


@pytest.mark.slow
def test_a_later_edition_is_another_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = identify(parse("prose")).digest
    assert (
        digest
        == identify(parse({"source": "prose"})).digest
        != identify(parse({"source": "prose", "limit": 10})).digest
    )
    rows = [dict(row) for row in ROWS]
    rows[7]["text"] += " Finis."
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    packed = lzma.compress(lines.encode(), preset=0)
    for edition, hashes in (("without hashes", False), ("with hashes of the earlier edition", True)):
        folder = tmp_path / edition
        folder.mkdir()
        (folder / "documents.jsonl.xz").write_bytes(packed)
        (folder / "books.json").write_bytes((FOLDER / "books.json").read_bytes())
        if hashes:
            (folder / "documents.json").write_bytes((FOLDER / "documents.json").read_bytes())
        monkeypatch.setattr(prose, "SHIPPED", folder)
        assert identify(parse("prose")).digest != digest


@pytest.mark.parametrize("limit", [None, 1, 200_000, 8_000_000])
def test_hashes_that_come_with_the_text_say_what_reading_it_would(limit: int | None) -> None:
    source = parse({"source": "prose", "limit": limit})
    found, extent = survey(source, Path()), source.extent()  # type: ignore[attr-defined]
    assert extent == (found.content, found.documents.held_out)
    assert found.largest is None


def test_a_mixture_takes_its_share_of_training_text() -> None:
    parts = [{"data": {"source": "prose"}, "weight": 1}, {"data": {"source": "stdlib"}, "weight": 3}]
    texts = list(parse({"source": "mixture", "parts": parts}).documents(Path()))  # type: ignore[attr-defined]
    prose_bytes = sum(len(text.encode()) for text in set(texts) & set(read()))
    assert not set(texts) & set(given())
    assert prose_bytes / sum(len(text.encode()) for text in texts) == pytest.approx(1 / 4, abs=0.03)


def test_a_study_can_train_on_it(tmp_path: Path) -> None:
    corpus = prepare(parse({"source": "prose", "limit": 200_000, "validation_tokens": 4096}), tmp_path)
    assert corpus.meta.unit == "document" and corpus.meta.split.given == len(given())  # type: ignore[union-attr]


def test_hard_wrapped_paragraphs_are_joined_and_verse_is_not() -> None:
    text = (
        "He said that it was late, and that\r\nhe would _go_ home.\r\n\r\nHome is the sailor,\r\nhome from sea,\r\n\r\n"
        * 3
    )
    assert cleaning.prose(text, "wrapped")[:2] == [
        "He said that it was late, and that he would go home.",
        "Home is the sailor,\nhome from sea,",
    ]


def test_of_pages_and_dictionaries_only_paragraphs_of_prose_stay() -> None:
    sentence = (
        "It is a truth universally acknowledged, that a page has sentences of some length, and they end with a stop."
    )
    code = f"<pre>{sentence * 2}</pre><p>{sentence} f() {sentence}"
    page = f"<title>x</title><p>{sentence} <b>{sentence}</b></p><p>Short.</p>{code}"
    assert cleaning.prose(page, "html") == [f"{sentence} {sentence}"]
    entry = f"[common] {sentence} See {{page}}. {sentence}"
    text = "\n\n   ".join([":truth: n.", entry, sentence, f"{sentence} http://x {sentence}"])
    assert cleaning.prose(text, "entries") == [f"{sentence} See page. {sentence}"]
