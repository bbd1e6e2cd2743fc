"""Many changes to one base: each is kept or discarded, for people and for programs."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(
    commands=("judge", "mcp"),
    groups={"judge": "run", "mcp": "run"},
    needs=("ablate/wings/browse", "ablate/wings/compare"),
    adds={"ablate.check": "campaign_log", "store.documents": "campaign_log"},
    face={"judging": ("Judgement", "judge")},
)
