"""Searches of a study's space: samplers, races, confirmation on fresh seeds, and their pages."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(
    commands=("search",),
    groups={"search": "run"},
    face={
        "searching": ("SearchResult", "search"),
        "samplers": ("MissingPackageError",),
        "storage": ("StorageError",),
    },
    adds={"reports.page.html.site": "pages", "ablate.api.browsing": "pages"},
)
