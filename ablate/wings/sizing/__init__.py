"""Time as a budget: studies that fit a number of minutes, and the measured steps that a budget in seconds pays for."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(
    face={"sizing": ("Sized", "size")},
    adds={"ablate.commands.plan": "commands._plan_minutes", "ablate.running.context": "calibration"},
)
