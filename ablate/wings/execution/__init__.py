"""Other ways to execute runs: each on several devices of a machine, or many with one compiled program."""

from __future__ import annotations

from ablate.wings import Wing

WING = Wing(adds={"ablate.running.forkserver": "program_server", "ablate.training.batch": "processes"})
