"""Evaluations of runs that were trained before, with tasks and diagnostics chosen by name."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(commands=("eval",), needs=("ablate/wings/named",), face={"evaluating": ("Scores", "evaluate")})
