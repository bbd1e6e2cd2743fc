"""Ladders: whether differences change with size and length, and what they are worth in compute."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(
    needs=("ablate/wings/results",),
    adds={
        "ablate.planning.campaign": "asked",
        "ablate.study.scales": "asked",
        "ablate.study.sections": "keys",
        "reports.page.sections": "sections",
    },
)
