"""Corpora for the tests: small ones made on the spot, and real text where there is some."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """60 different documents of words, line ends and characters of one to four bytes."""
    rng = random.Random(0)
    words = ["the", "cat", "sat", "naïve", "ὕλη", "日本語", "🙂", "on", "a", "mat", "  ", "x = 1\n"]
    return [f"{i} " + " ".join(rng.choices(words, k=rng.randint(20, 300))) for i in range(60)]


@pytest.fixture
def corpus_file(tmp_path: Path, texts: list[str]) -> Path:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


@pytest.fixture(scope="session")
def real_text() -> Path:
    folder = os.environ.get("ABLATE_TEST_DATA")
    if not folder:
        pytest.skip("ABLATE_TEST_DATA names no folder of real text")
    return Path(folder)
