"""Claims of others: the handbook and the atlas of results, studies registered before they run, tables replicated."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(
    commands=("register", "atlas", "claims", "replicate"),
    needs=("ablate/wings/catalogue", "ablate/wings/plugins", "ablate/wings/results"),
    groups={"claims": "ask", "replicate": "run", "atlas": "look"},
    folded={"register": ("plan", "--register")},
    face={
        "atlas": ("atlas",),
        "handbook": ("HandbookClaim", "claims"),
        "recording": ("record_result",),
        "registering": ("Registration", "register"),
        "replicating": ("Replication", "replicate"),
    },
    adds={
        "ablate.commands.report": "commands._record",
        "ablate.planning.plan_shown": "stated",
        "ablate.planning.study_document": "stated",
        "ablate.running.stages": "registering",
        "ablate.study.rung_reader": "asked",
        "ablate.study.sections": "claim_spec",
        "reports.page.html.ranking": "sections.claims",
        "reports.page.sections": "sections",
    },
)
