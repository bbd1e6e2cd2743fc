"""One browser for all tests of pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from tests.reports.browsing import CHROMIUM, playwright  # noqa: PLC0415 (other tests need no browser)

    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--headless"])
        yield browser
        browser.close()
