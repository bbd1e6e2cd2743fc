"""Opening pages in a real browser."""

from __future__ import annotations

import base64
import json
import re
import shutil
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first starts in a sixth of the time."""
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
no_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")

ALL_DRAWN = "[...document.querySelectorAll('.drawing')].every(div => div.querySelector('.main-svg'))"


@dataclass
class Visit:
    """Record of what a page did while it was open."""

    page: Any
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


def visit(browser: Any, path: Path, width: int = 1280, scheme: str = "light") -> Visit:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    found = Visit(page)
    page.on("console", lambda message: found.messages.append(message.text))
    page.on("pageerror", lambda error: found.messages.append(str(error)))
    page.on("dialog", lambda dialog: found.messages.append(f"dialog {dialog.message}"))
    page.on("request", lambda request: found.requests.append(request.url))
    page.goto(path.as_uri())
    try:
        wait_until(page, ALL_DRAWN)
    except AssertionError as error:
        error.add_note(f"messages of the page: {found.messages}")
        raise
    return found


def wait_until(page: Any, condition: str) -> None:
    """Poll from outside: the page's policy forbids the eval that Playwright's own waiting uses."""
    until = time.monotonic() + 60  # on a busy machine, a page takes long to draw
    while time.monotonic() < until:
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never came true: {condition}")


def unpacked(page: str, name: str) -> str:
    """Unpack the text that a page carries as `name`, independently of the code that packs it."""
    (text,) = re.findall(rf'<script type="text/plain" id="{name}">(.*?)</script>', page)
    return zlib.decompress(base64.b85decode(text.replace(",", "<")), wbits=-15).decode()


def data_of(page: str) -> dict[str, Any]:
    """The figures and runs of a page."""
    found: dict[str, Any] = json.loads(unpacked(page, "data"))
    return found
