"""Texts that a trained model continues, or whose holes it fills in."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(commands=("generate",), needs=("ablate/wings/named",), face={"generating": ("Generated", "generate")})
