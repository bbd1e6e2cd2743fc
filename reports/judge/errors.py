"""Errors of reports."""

from __future__ import annotations

from store import AblateError


class ReportError(AblateError):
    """The study cannot be reported: it is missing, or its runs must not be compared."""
