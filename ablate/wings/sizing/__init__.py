"""Studies that fit a number of minutes: the model, its training and the seeds that this machine has time for."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(face={"sizing": ("Sized", "size")}, adds={"ablate.commands.plan": "commands._plan_minutes"})
