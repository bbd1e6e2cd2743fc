"""A study's figures and tables as files for a paper."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(
    face={"exporting": ("Exported", "export_report")},
    adds={"ablate.commands.report": "commands._export"},
)
