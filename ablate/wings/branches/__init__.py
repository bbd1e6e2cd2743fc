"""Runs that begin with the same steps take them once: one stable phase, and a decay for each length."""

from __future__ import annotations

from ablate.wings import Wing

PLACES = ("ablate.planning.durations", "ablate.running.phases", "ablate.running.request")
WING = Wing(adds=dict.fromkeys(PLACES, "sharing"))
