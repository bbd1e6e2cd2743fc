"""Recorded results: what studies found, in files to commit, and how often such findings held in larger models."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(
    adds={
        "ablate.commands.plan.known": "recorded",
        "ablate.planning.prospects": "recorded",
        "reports.page.wording.answers": "kept_signs",
    }
)
