"""Advice: the commands that follow from a study's verdicts, with their time and their chance of success."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(adds={"reports.judge.findings.next_steps": "next_steps"})
