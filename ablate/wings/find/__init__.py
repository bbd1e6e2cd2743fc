"""A search over everything with a name: commands, models, settings, studies, claims and documentation."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(
    commands=("find",),
    needs=("ablate/wings/catalogue", "ablate/wings/science"),
    groups={"find": "ask"},
    face={"finding": ("Found", "find")},
)
