"""Services that runs are logged to, one per file."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(adds={"ablate.running.trackers": "_following", "ablate.tracking": ""})
