"""Tuning: every arm finds its own learning rate, or other settings, before arms are compared."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(
    adds={
        "ablate.planning.campaign.tuned": "tuning",
        "ablate.planning.plan_shown.tuning": "tuning",
        "ablate.planning.campaign.starts": "known_rates",
    }
)
