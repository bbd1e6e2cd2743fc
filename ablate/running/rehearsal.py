"""One process that times training steps: `python -m ablate.running.rehearsal request.json`.

Says `ready` on standard output once everything is built and waits for a line on standard input, so that several can
begin at once. Then prints one JSON list for each run that it was asked about: the seconds of the steps that count.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from ablate.data import open_corpus
from ablate.machine.numerics import Numerics, enforce
from ablate.running.lifeline import end_with_parent
from ablate.store import Store
from ablate.store.documents import Environment, Part, RunDocument
from ablate.training.loop import TrainingStep
from ablate.training.session import Session

SETTLING_STEPS = 2
"""Steps at the start of a turn that do not count: the caches still hold another run's numbers."""


class Effort(Part):
    """How long is measured: `turns` per run after one that does not count, each of at least `steps` and `seconds`."""

    turns: int = 4
    steps: int = 8
    seconds: float = 0.5


class Timed(Part):
    """Seconds of the steps that count, by run, and where they were measured."""

    seconds: list[list[float]]
    environment: Environment


class Rehearsal(Part):
    """Runs to time, alternating, from the one at `first` on. `scratch` is an empty store."""

    identities: tuple[RunDocument, ...]
    corpus: str
    scratch: str
    first: int
    effort: Effort

    def to_json(self) -> str:
        return self.model_dump_json(by_alias=True)


def main(arguments: list[str]) -> int:
    request = Rehearsal.model_validate_json(Path(arguments[0]).read_bytes())
    runs = [_steps(identity, request) for identity in request.identities]
    print("ready", flush=True)
    if not sys.stdin.readline():
        return 1
    threading.Thread(target=end_with_parent, daemon=True).start()
    print(json.dumps(by_turns(runs, request.first, request.effort)), flush=True)
    return 0


def _steps(identity: RunDocument, request: Rehearsal) -> Iterator[list[TrainingStep]]:
    """The training steps of a run, in stretches."""
    wanted = identity.numerics
    enforce(wanted.device, wanted.dtype)
    store, corpus = Store(request.scratch), open_corpus(Path(request.corpus))
    numerics = Numerics(wanted.device, wanted.dtype, wanted.matmul)
    return Session(store, identity, corpus, numerics, rest_seconds=request.effort.seconds / 2).rehearse()


def by_turns(runs: list[Iterator[list[TrainingStep]]], first: int, effort: Effort) -> list[list[float]]:
    """Seconds of the steps that count, of each run."""
    times: list[list[float]] = [[] for _ in runs]
    for turn in range(effort.turns + 1):
        for place in range(len(runs)):
            index = (first + place) % len(runs)
            taken = _turn(runs[index], effort)
            if turn > 0:
                times[index] += taken
    return times


def _turn(stretches: Iterator[list[TrainingStep]], effort: Effort) -> list[float]:
    """Seconds of the steps of one turn, without those in which it settles."""
    taken: list[float] = []
    while len(taken) < effort.steps or sum(taken) < effort.seconds:
        taken += [step.tokens / step.step / step.tokens_per_second for step in next(stretches)]
    return taken[SETTLING_STEPS:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
