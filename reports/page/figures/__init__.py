"""Figures, each with a table of its data."""

from __future__ import annotations

from reports.page.figures.base import Figure
from reports.page.figures.drawing import CONFIG

__all__ = ["CONFIG", "Figure"]
