"""Grids, which cross every arm with lists of values, and factorial designs, whose runs each inform every effect."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(
    adds={
        "ablate.study.sections": "design_spec",
        "ablate.study.arms": "asked",
        "ablate.planning.study_document": "asked",
        "ablate.planning.plan_shown": "asked",
        "ablate.api.running": "promotion",
        "reports.judge.findings.summary": "factorial_effects",
        "reports.page.wording": "effect_words",
        "reports.page.sections": "sections",
    }
)
