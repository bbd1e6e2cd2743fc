"""Ladders: whether differences change with size and length, and what they are worth in compute."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(adds={"reports.page.sections": "sections"})
