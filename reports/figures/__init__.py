"""Figures, each with a table of its data."""

from __future__ import annotations

from reports.figures.base import Figure
from reports.figures.style import CONFIG

__all__ = ["CONFIG", "Figure"]
