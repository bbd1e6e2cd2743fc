"""Every figure that a test draws is checked by plotly, and its axes have room for its marks."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import pytest

from reports.page.figures.base import Figure
from tests.reports.inside import left_out


@pytest.fixture(autouse=True)
def _checked_by_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    """plotly knows every attribute of what is drawn, and its values."""
    make = Figure.__init__

    def checked(figure: Figure, *given: Any, **named: Any) -> None:
        make(figure, *given, **named)
        go.Figure(figure.drawing.to_plotly_json())
        assert left_out(figure) == []

    monkeypatch.setattr(Figure, "__init__", checked)
