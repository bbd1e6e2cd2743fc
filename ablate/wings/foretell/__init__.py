"""Costs of what is not at hand: memory of runs, studies on other devices or at full size, benchmarks beside others."""

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
    adds={"ablate.commands.plan": "commands._plan_elsewhere", "ablate.running.study_plan.arms": "memory_needs"},
)
