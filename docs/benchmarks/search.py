"""Searches compared at equal FLOPs: `ablate search`, and 25 lines of optuna.

python docs/benchmarks/search.py STORE --repetitions 10 --space free      # also tight, and front

A pruned trial counts for the share of its steps that was trained. The settings that each search finds are trained again
with five seeds that no search used.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState

import ablate
from ablate.running.context import open_context
from ablate.running.corpora import prepare_corpora
from ablate.study.reading import load_study
from ablate.wings.search.asking import suggest
from ablate.wings.search.search_space import Params
from ablate.wings.search.trial_runner import IllegalError, Job, StudyTrialRunner

FRESH = (0, 1, 2, 3, 4)
VALIDATIONS = 5
SMALL = {
    "base.d_model": 64,
    "base.n_layers": 2,
    "base.blocks.local.mixer.window": 8,
    "data.validation_tokens": 8192,
    "train.context": 64,
    "train.validate_every": 1 / VALIDATIONS,
    "search.space.d_model": {"range": [32, 96], "step": 16},
    "search.space.n_layers": {"range": [1, 4]},
}
TIGHT = ["block.mixer.kv_heads divides block.mixer.heads", "parameters within 2 % of base", "kv_bytes_per_token <= 300"]

METHODS = {
    "free": ("ablate search", "TPE and median pruner"),
    "tight": ("ablate search", "TPE and median pruner"),
    "front": ("ablate search", "NSGA-II"),
}


@dataclass
class Contest:
    """One space with its budget of trials, in one store."""

    store: Path
    space: str
    flops: float
    trials: int
    lab: StudyTrialRunner = field(init=False)

    def __post_init__(self) -> None:
        objectives = ["loss", "kv_bytes_per_token"] if self.space == "front" else ["loss"]
        self.sets = {**SMALL, "budget": {"flops": self.flops}, "search.objectives": objectives}
        if self.space == "tight":
            self.sets["search.constraints"] = TIGHT
        self.study = load_study("search_small_lm", "cpu", self.sets)
        self.context = open_context(self.store, {"engine": "inprocess"}, False)
        plan = self.context.planner(self.study).plan
        self.lab = StudyTrialRunner(self.study, plan, self.context.store, self.context.request)
        prepare_corpora(self.study, self.context.store, lambda *_: None)

    def train(self, job: Job, is_hopeless: Callable[[], bool] = lambda: False) -> None:
        """Train a job's runs, and stop once it is hopeless."""
        engine = self.context.engine

        def look() -> None:
            if is_hopeless():
                engine.stop(job.digests[0])

        with closing(engine.run([r for r in job.requests if r.missing()], look)) as events:
            for _ in events:
                pass

    def fresh(self, params: Params | None) -> list[tuple[float, ...]]:
        """Scores with seeds that no search used, for settings or (None) for the base."""
        arm = self.study.arms[0] if params is None else self.lab.space.arm("found", params)
        job = self.lab.seeded(arm, FRESH)
        self.train(job)
        return [self.lab.values(replace(job, requests=(request,))) or () for request in job.requests]


@dataclass
class Found:
    """Settings that a search found, its number of trials, and their cost in whole trials."""

    best: list[Params]
    trials: int
    cost: float


def by_ablate(contest: Contest, seed: int, **given: Any) -> Found:
    """given: settings of the search other than the defaults."""
    sets = {**contest.sets, "search.trials": contest.trials, "search.seed": seed, "search.confirm": 0}
    sets |= {f"search.{name}": value for name, value in given.items()}
    store = contest.store / "-".join([contest.space, str(seed), *map(str, given.values())])
    found = ablate.search("search_small_lm", scale="cpu", sets=sets, store=store, engine="inprocess", progress=False)
    trials = found.found.trials
    cost = sum(len(trial.curve) / VALIDATIONS if trial.state == "pruned" else 1.0 for trial in trials)
    return Found([trial.params for trial in trials if trial.best], len(trials), cost)


def by_script(contest: Contest, sampler: Any, pruner: Any) -> Found:
    """The loop suggested by a page of optuna's documentation."""
    study = optuna.create_study(sampler=sampler, pruner=pruner, directions=[*contest.lab.spec.objectives.values()])
    cost, count = 0.0, 0
    while cost <= contest.trials - 1 + 1e-6:
        trial = study.ask()
        params = contest.lab.space.draw(lambda path, axis: suggest(trial, path, axis))  # noqa: B023
        try:
            job = contest.lab.job(params)
        except IllegalError:
            study.tell(trial, state=TrialState.PRUNED)
            continue
        share, count = trained(contest, trial, job, len(study.directions) == 1), count + 1
        cost += share
        if share < 1:
            study.tell(trial, state=TrialState.PRUNED)
        else:
            study.tell(trial, contest.lab.values(job))
    return Found([trial.params for trial in study.best_trials], count, cost)


def trained(contest: Contest, trial: optuna.Trial, job: Job, prunes: bool) -> float:
    """Train a trial until its pruner ends it. Returns the share that was trained."""
    losses: list[float] = []

    def is_hopeless() -> bool:
        for loss in contest.lab.curve(job)[len(losses) : job.validations - 1]:
            losses.append(loss)
            trial.report(loss, len(losses))
            if prunes and trial.should_prune():
                return True
        return False

    contest.train(job, is_hopeless)
    return 1.0 if not any(request.missing() for request in job.requests) else len(losses) / job.validations


def search(contest: Contest, method: str, seed: int) -> Found:
    """The search of one method."""
    tpe, nsga = optuna.samplers.TPESampler(seed=seed), optuna.samplers.NSGAIISampler(seed=seed, population_size=10)
    match method:
        case "ablate search":
            return by_ablate(contest, seed)
        case "TPE and median pruner":
            return by_script(contest, tpe, optuna.pruners.MedianPruner())
        case "NSGA-II":
            return by_script(contest, nsga, optuna.pruners.NopPruner())
    raise ValueError(method)


def summary(rows: list[dict[str, Any]], space: str) -> str:
    """Markdown rows: mean score on fresh seeds, and the number of repetitions in which the first method is better."""
    score = area if space == "front" else loss
    known: dict[str, dict[int, float]] = {}
    for row in rows:
        known.setdefault(row["method"], {})[row["seed"]] = score(row["fresh"])
    seeds = set.intersection(*(set(of) for of in known.values()))
    first = next(iter(known.values()))
    lines = ["| method | repetitions | score | trials | first better in |", "|---|--:|--:|--:|--:|"]
    for name, of in known.items():
        mean = statistics.fmean(of[seed] for seed in seeds) if seeds else math.nan
        trials = statistics.fmean(row["trials"] for row in rows if row["method"] == name)
        wins = sum(first[seed] < of[seed] for seed in seeds)
        lines.append(f"| {name} | {len(seeds)} | {mean:.3f} | {trials:.0f} | {wins} |")
    return "\n".join(lines)


def loss(found: list[list[list[float]]]) -> float:
    """Mean over fresh seeds of the one model that a search found; infinite if it found none."""
    return min((statistics.fmean(seed[0] for seed in model) for model in found), default=math.inf)


def area(found: list[list[list[float]]]) -> float:
    """Negated hypervolume below a loss of 6 nats and 2,048 cache bytes per token, as a share of that rectangle."""
    points = sorted((statistics.fmean(s[0] for s in m) / 6, m[0][1] / 2048) for m in found)
    covered, lowest = 0.0, 1.0
    for x, y in points:
        if x < 1 and y < lowest:
            covered, lowest = covered + (1 - x) * (lowest - y), y
    return -covered


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--space", choices=tuple(METHODS), default="free")
    parser.add_argument("--methods", nargs="+", help="default: all of the space; the first is compared with the others")
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="seed of the first repetition")
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--flops", type=float, default=2.2e10)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    contest = Contest(options.store, options.space, options.flops, options.trials)
    kept, methods = options.store / f"{options.space}.jsonl", options.methods or METHODS[options.space]
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    for seed in range(options.first, options.first + options.repetitions):
        for method in methods:
            if any((row["method"], row["seed"]) == (method, seed) for row in rows):
                continue
            found = search(contest, method, seed)
            fresh = [contest.fresh(params) for params in found.best]
            rows.append({"method": method, "seed": seed, "fresh": fresh, **asdict(found)})
            with kept.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
        print(summary(sorted(rows, key=lambda row: row["method"] != methods[0]), options.space), "\n", flush=True)
    print(f"base, not searched: {contest.fresh(None)}")


if __name__ == "__main__":
    main()
