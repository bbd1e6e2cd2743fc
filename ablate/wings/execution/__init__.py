"""Runs on several devices of a machine: data parallelism, and sharded weights."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(adds={"ablate.training.accumulation": "processes"})
