"""Engines whose workers are on other machines: Slurm and Ray."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(adds={"ablate.running.engines": ""})
