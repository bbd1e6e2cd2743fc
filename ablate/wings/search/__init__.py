"""Searches of a study's space: samplers, races, confirmation on fresh seeds, and their pages."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(
    commands=("search",),
    needs=("ablate/wings/serve",),
    groups={"search": "run"},
    face={
        "searching": ("SearchResult", "search"),
        "samplers": ("MissingPackageError",),
        "storage": ("StorageError",),
    },
    adds={
        "ablate.study.sections": "search_spec",
        "ablate.study.rung_reader": "search_space",
        "ablate.planning.checks": "search_space",
        "ablate.running.study_plan": "search_space",
        "ablate.api.named": "documents",
        "ablate.check.searches": "documents",
        "ablate.open": "pages",
        "ablate.pages": "pages",
        "store.documents": "documents",
    },
)
