"""Other people's losses: verdicts on tables, logs and whole stores."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(
    commands=("compare",),
    groups={"compare": "ask"},
    needs=("ablate/wings/ladders",),
    face={
        "comparing": ("LossComparison", "compare"),
        "comparison_page": ("write_comparison",),
        "pooling": ("StoresCompared", "compare_stores"),
    },
)
