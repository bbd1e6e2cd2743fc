"""Costs of what is not at hand: a study on another device or at full size, and benchmarks beside other libraries."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(
    commands=("bench",),
    needs=("ablate/wings/starts",),
    face={
        "benching": ("bench",),
        "foretelling": ("Foretold", "plan_on"),
        "scaling": ("Fits", "ScaleUp", "fit", "scale_up"),
    },
    adds={"ablate.commands.plan": "commands._plan_elsewhere"},
)
