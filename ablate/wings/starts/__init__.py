"""Arms that start from or learn from another model: other arms' weights, checkpoints, teachers, low-rank adapters."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(
    needs=("evals/harness", "zoo/conversion"),
    face={"checkpoints": ("CheckpointError",)},
    adds={
        "ablate.study.sources": "keys",
        "ablate.study.rung_reader": "asked",
        "ablate.planning.make_plan": "asked",
        "ablate.planning.plan_shown": "asked",
        "ablate.running.corpora": "asked",
        "ablate.training.weights": "lora",
        "ablate.training.session": "training",
        "ablate.training.trained": "checkpoints",
    },
)
