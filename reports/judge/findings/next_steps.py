"""Next steps: commands that follow from the verdicts, which wings suggest, with their time and chance of success."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pydantic import JsonValue

from reports.judge.findings.study_summary import StudySummary
from store.extensions import modules_of


@dataclass(frozen=True)
class NextStep:
    """A command, its purpose, its time in seconds with one run after another, and the probability that it settles its
    purpose; None if unknown.

    tunes: whether the seconds include tuning. seeds: number of fresh seeds, if it trains these.
    """

    command: str
    reason: str
    seconds: float | None = None
    chance: float | None = None
    tunes: bool = False
    seeds: int | None = None

    def document(self, at_once: int = 1) -> dict[str, JsonValue]:
        """The document that `ablate run --json` prints. at_once: number of concurrent runs."""
        seconds = None if self.seconds is None else self.seconds / at_once
        times: dict[str, JsonValue] = {"seconds": seconds, "at_once": at_once}
        return {"command": self.command, "reason": self.reason, **times, "chance": self.chance}

    def words(self, at_once: int = 1) -> str:
        """`Next, to detect a difference of 0.02 nats, if there is one …: ablate run … (about 12 minutes of training,
        80 % chance)`. at_once: number of concurrent runs."""
        return f"Next, to {self.reason}: {self.command} ({self.promise(at_once)})"

    def promise(self, at_once: int = 1) -> str:
        """Its time, and the probability that it settles its purpose: `about 12 minutes of training, 80 % chance`."""
        takes = "ablate plan estimates the time"
        if self.seconds is not None:
            minutes = math.ceil(self.seconds / at_once / 60)
            long = f"{minutes / 60:.1f} hours" if minutes > 120 else f"{minutes} minute{'' if minutes == 1 else 's'}"
            how = "one run after another" if at_once == 1 else f"{at_once} runs at once"
            takes = f"about {long} of training{' and tuning' * self.tunes}, {how}"
        return takes if self.chance is None else f"{takes}, {100 * self.chance:.0f} % chance"


def next_steps(summary: StudySummary) -> tuple[NextStep, ...]:
    """The commands that follow from the verdicts, the most informative first; none without a wing that knows any."""
    steps = (step for wing in modules_of(__name__) for step in wing.steps(summary))
    return tuple({step.command: step for step in steps}.values())
