"""A store in tables: its studies and their answers, beside those that ship, its runs and their logs."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(
    commands=("list", "status", "logs", "ledger"),
    needs=("ablate/wings/named", "ablate/wings/results"),
    groups={"list": "look", "status": "look", "logs": "look", "ledger": "look"},
    folded={"logs": ("report", "--log"), "ledger": ("report", "--ledger"), "status": ("list", "--running")},
    face={"browsing": ("Runs", "logs", "open")},
)
