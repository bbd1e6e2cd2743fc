"""Searches whose scores are a function of the settings, through the same code path as real ones."""

from __future__ import annotations

import math
import statistics
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from ablate.running.engines import Event
from ablate.running.request import Request
from ablate.study.reading import load_study
from ablate.study.study import Study
from ablate.wings.search.documents import SearchFolder
from ablate.wings.search.samplers import chosen_sampler, make_pruner, make_sampler
from ablate.wings.search.search import Search
from ablate.wings.search.search_space import Params, SearchSpace
from ablate.wings.search.search_spec import SearchSpec
from ablate.wings.search.storage import Owner
from ablate.wings.search.trial_runner import IllegalError, Job, StudyTrialRunner
from store import Store
from tests.documents import run_of

STUDY = """
question: Which?
base: {preset: small, d_model: 64, n_layers: 2, block.mixer.heads: 4}
search:
  space: SPACE
data: {source: files, paths: [text.txt], tokenizer: bytes}
budget: {tokens: 20000}
tune: off
"""
NUMBERS = "{train.lr: {log: [1e-4, 1e-1]}, train.warmup: {range: [0.0, 0.5]}, block.ffn.d_ff: {ratio: [1x, 8x]}}"
Score = Callable[[Params], tuple[float, ...]]


def study_of(folder: Path, space: str = NUMBERS, *sets: str) -> Study:
    path = folder / "known.yaml"
    path.write_text(STUDY.replace("SPACE", space))
    return load_study(path, "cpu", sets)


ENDED = set[str]()
"""Digests of runs that an `Instant` engine has finished."""
DIGESTS = count()


class Asked(Request):
    """A request that no store answers."""

    def missing(self, store: Store | None = None) -> list[str]:
        return [] if self.digest in ENDED else ["train"]


class Known(StudyTrialRunner):
    """A laboratory whose scores are a function of the settings, plus noise of the seed if there is any."""

    def __init__(
        self,
        study: Study,
        score: Score,
        legal: Callable[[Params], bool] = lambda _: True,
        noise: float = 0.0,
        seeds: int = 1,
    ) -> None:
        assert study.search is not None
        self.noise, self.seeds = noise, seeds
        self.space = SearchSpace(study.builder, study.search.space)
        self.score, self.legal = score, legal
        self.jobs: dict[str, tuple[Params, float]] = {}

    def job(self, params: Params, share: float = 1.0, repeat: int = 0) -> Job:
        if self.distances(params):
            raise IllegalError("not legal")
        requests = []
        for seed in range(repeat * self.seeds, (repeat + 1) * self.seeds):
            digest = f"{next(DIGESTS)}"
            self.jobs[digest] = params, share
            requests.append(Asked(store="/nowhere", corpus="/nowhere", identity=run_of(digest, seed=1000 + seed)))
        return Job(tuple(requests), validations=5)

    def distances(self, params: Params) -> dict[str, float]:
        return {} if self.legal(params) else {"not legal": 1.0}

    def beyond(self, job: Job) -> dict[str, float]:
        return {}

    def values(self, job: Job) -> tuple[float, ...]:
        return tuple(map(statistics.fmean, zip(*map(self._value, job.requests), strict=True)))

    def _value(self, request: Request) -> tuple[float, ...]:
        rng = np.random.default_rng([request.identity.seed, zlib.crc32(repr(self.jobs[request.digest]).encode())])
        return tuple(value + self.noise * rng.normal() for value in self.score(self.jobs[request.digest][0]))

    def curve(self, job: Job) -> list[float]:
        (value,) = self.values(job)
        return [value + 1 / (step + 1) for step in range(5)]


class Instant:
    """An engine of two or so workers, whose runs end at once; what is stopped in between has failed."""

    device, where, here, at_once = "cpu", "a CPU", True, 2

    def __init__(self, until: int | None = None, deaf: bool = False, workers: int = 2) -> None:
        self.workers = workers
        self.deaf = deaf
        """Whether runs have ended by the time that they are stopped."""
        self.ran: list[str] = []
        self.stopped: set[str] = set()
        self.until = until
        """After so many runs the command is interrupted."""

    def run(
        self, requests: Iterable[Request | None], meanwhile: Callable[[], None] = lambda: None
    ) -> Iterator[Event | None]:
        busy: list[str] = []
        waiting = iter(requests)
        over = False
        while busy or not over:
            while len(busy) < self.workers and not over:
                request = next(waiting, self)
                over = request is self
                if not isinstance(request, Request):
                    break
                busy.append(request.digest)
                yield Event("started", request.digest)
            if len(self.ran) == self.until:
                raise KeyboardInterrupt
            meanwhile()
            yield None
            if busy:
                digest = busy.pop(0)
                self.ran.append(digest)
                is_stopped = digest in self.stopped and not self.deaf
                ENDED.update(() if is_stopped else (digest,))
                yield Event("failed" if is_stopped else "finished", digest)

    def stop(self, digest: str) -> None:
        self.stopped.add(digest)


def search(
    lab: Known, spec: SearchSpec, folder: Path, seed: int = 0, engine: Instant | None = None, storage: Any = None
) -> tuple[optuna.Study, Search]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    spec = spec.model_copy(update={"seed": seed})
    kind = chosen_sampler(spec, lab.space)
    study = optuna.create_study(
        directions=list(spec.objectives.values()),
        sampler=make_sampler(spec, kind),
        pruner=make_pruner(spec, 5, 1),
        storage=storage,
        study_name="known",
        load_if_exists=True,
    )
    one = Search(study, spec, lab, Owner(SearchFolder(folder)), kind, say=lambda _: None)
    one.run(engine or Instant())
    return study, one


def spec_of(study: Study, **given: Any) -> SearchSpec:
    assert study.search is not None
    return SearchSpec.model_validate({**study.search.model_dump(exclude_unset=True), **given})


def bowl(params: Params) -> tuple[float]:
    """Lowest at a rate of 0.005, a warm-up of 0.17 and a ratio of 5.5."""
    rate = math.log10(params["train.lr"] / 0.005)
    return (rate**2 + 8 * (params["train.warmup"] - 0.17) ** 2 + ((params["block.ffn.d_ff"] - 5.5) / 4) ** 2,)


def trade(params: Params) -> tuple[float, float]:
    """Squared distances from two points, in the unit cube of the space: the front is the line between them."""
    place = (
        math.log10(params["train.lr"] / 1e-4) / 3,
        params["train.warmup"] / 0.5,
        (params["block.ffn.d_ff"] - 1) / 7,
    )
    return sum((x - 0.2) ** 2 for x in place), sum((x - 0.7) ** 2 for x in place)
