"""One browser for all tests of pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import plotly.graph_objects as go
import pytest

from reports.page.figures import Figure


@pytest.fixture(autouse=True)
def _checked_by_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    """plotly knows every attribute of what is drawn, and its values."""
    make = Figure.__init__

    def checked(figure: Figure, *given: Any, **named: Any) -> None:
        make(figure, *given, **named)
        go.Figure(figure.drawing.to_plotly_json())

    monkeypatch.setattr(Figure, "__init__", checked)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from tests.reports.browsing import CHROMIUM, playwright  # noqa: PLC0415 (other tests need no browser)

    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--headless"])
        yield browser
        browser.close()
