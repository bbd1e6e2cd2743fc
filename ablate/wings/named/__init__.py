"""Runs by name: digest, folder, place in a study, or the name of an imported model."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing()
