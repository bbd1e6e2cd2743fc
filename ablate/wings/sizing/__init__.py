"""Sizes and times that fit: arms of equal parameters, budgets in seconds, studies of so many minutes."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(
    face={"sizing": ("Sized", "size")},
    adds={
        "ablate.commands.plan": "commands._plan_minutes",
        "ablate.planning.make_plan.matched": "matching",
        "ablate.running.context": "calibration",
    },
)
