"""Searches compared at equal FLOPs and equal seconds: random search, 25 lines of optuna, and `ablate search`.

python docs/benchmarks/search.py STORE --repetitions 10 --space free      # also tight, and front

The settings that each search finds are trained again with five seeds that no search used. The optuna script's runs are
trained in full; its pruner replays their validation losses, and is charged only for the part that it would have
trained. Seconds are processor time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState

import ablate
from ablate.running.context import open_context
from ablate.running.corpora import prepare_corpora
from ablate.study.reading import load_study
from ablate.wings.search.asking import suggest
from ablate.wings.search.racing import fronts
from ablate.wings.search.search_space import Params
from ablate.wings.search.trial_runner import IllegalError, Job, StudyTrialRunner

FRESH = (0, 1, 2, 3, 4)
MOST_PROPOSALS = 2_000
SMALL = {
    "base.d_model": 64,
    "base.n_layers": 2,
    "base.blocks.local.mixer.window": 8,
    "data.validation_tokens": 8192,
    "train.context": 64,
    "train.validate_every": 0.2,
    "search.space.d_model": {"range": [32, 96], "step": 16},
    "search.space.n_layers": {"range": [1, 4]},
}
TIGHT = ["block.mixer.kv_heads divides block.mixer.heads", "parameters within 2 % of base", "kv_bytes_per_token <= 300"]


@dataclass
class Contest:
    """One space with its budget of trials, in one store."""

    store: Path
    space: str
    flops: float
    trials: int
    lab: StudyTrialRunner = field(init=False)
    seconds: dict[str, float] = field(default_factory=dict)
    """Processor time of each job's training, by its runs: a later method that trains the same runs is charged for it
    too."""

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

    def train(self, job: Job) -> float:
        """Train a job's runs. Returns their processor seconds, even if another method has trained them."""
        began = time.process_time()
        with closing(self.context.engine.run([r for r in job.requests if r.missing()])) as events:
            for _ in events:
                pass
        key = " ".join(request.digest for request in job.requests)
        return self.seconds.setdefault(key, time.process_time() - began)

    def fresh(self, params: Params | None) -> list[tuple[float, ...]]:
        """Scores with seeds that no search used, for settings or (None) for the base."""
        arm = self.study.arms[0] if params is None else self.lab.space.arm("found", params)
        job = self.lab.seeded(arm, FRESH)
        self.train(job)
        return [self.lab.values(replace(job, requests=(request,))) or () for request in job.requests]


@dataclass
class Found:
    """Settings that a search found within the allowed FLOPs and within the allowed seconds."""

    by_flops: list[Params]
    by_seconds: list[Params]
    trials: int
    seconds: float


def by_ablate(contest: Contest, seed: int) -> Found:
    began = time.process_time()
    sets = {**contest.sets, "search.trials": contest.trials, "search.seed": seed, "search.confirm": 0}
    store = contest.store / f"{contest.space}-{seed}"
    found = ablate.search("search_small_lm", scale="cpu", sets=sets, store=store, engine="inprocess", progress=False)
    best = [trial.params for trial in found.found.trials if trial.best]
    return Found(best, best, len(found.found.trials), time.process_time() - began)


def by_script(contest: Contest, sampler: Any, pruner: Any, seconds: float) -> Found:
    """The loop suggested by a page of optuna's documentation."""
    study = optuna.create_study(sampler=sampler, pruner=pruner, directions=[*contest.lab.spec.objectives.values()])
    flops, spent, found, count = 0.0, 0.0, dict[str, list[Params]](), 0
    for _ in range(MOST_PROPOSALS):
        for kind, is_over in (("flops", flops >= contest.trials), ("seconds", spent >= seconds)):
            if is_over and kind not in found:
                found[kind] = [trial.params for trial in study.best_trials]
        if len(found) == 2:
            break
        began = time.process_time()
        trial = study.ask()
        params = contest.lab.space.draw(lambda path, axis: suggest(trial, path, axis))  # noqa: B023
        try:
            job = contest.lab.job(params)
        except IllegalError:
            study.tell(trial, state=TrialState.PRUNED)
            spent += time.process_time() - began
            continue
        asked = time.process_time() - began
        trained, share, count = contest.train(job), 1.0, count + 1
        for step, loss in enumerate(contest.lab.curve(job) if len(study.directions) == 1 else [], start=1):
            trial.report(loss, step)
            if step < job.validations and trial.should_prune():
                share = step / job.validations
                break
        if share < 1:
            study.tell(trial, state=TrialState.PRUNED)
        else:
            study.tell(trial, contest.lab.values(job))
        flops, spent = flops + share, spent + asked + share * trained
    at_last = [trial.params for trial in study.best_trials] if count else []
    return Found(found.get("flops", at_last), found.get("seconds", at_last), count, spent)


def repetition(contest: Contest, seed: int) -> dict[str, Any]:
    """Scores on fresh seeds of the settings that each method found."""
    ours = by_ablate(contest, seed)
    methods: dict[str, tuple[Any, Any]] = {"random": (optuna.samplers.RandomSampler(seed=seed), None)}
    if contest.space == "front":
        methods["nsga2"] = (optuna.samplers.NSGAIISampler(seed=seed, population_size=10), None)
    else:
        methods["tpe + median"] = (optuna.samplers.TPESampler(seed=seed), optuna.pruners.MedianPruner())
    found = {"ablate": ours}
    found |= {name: by_script(contest, sampler, pruner, ours.seconds) for name, (sampler, pruner) in methods.items()}
    return {
        "seed": seed,
        "base": contest.fresh(None),
        **{
            name: {
                "flops": [contest.fresh(params) for params in each.by_flops],
                "seconds": [contest.fresh(params) for params in each.by_seconds],
                "trials": each.trials,
                "cpu_seconds": round(each.seconds, 1),
            }
            for name, each in found.items()
        },
    }


def summary(repetitions: list[dict[str, Any]], space: str) -> str:
    """Markdown rows: mean score on fresh seeds at equal FLOPs and seconds, and the number of repetitions that ablate
    won."""
    lines = ["| method | equal FLOPs | ablate better in | equal seconds | ablate better in |", "|---|--:|--:|--:|--:|"]
    best = area if space == "front" else loss
    for name in (name for name in repetitions[0] if name not in ("seed", "base")):
        cells = []
        for kind in ("flops", "seconds"):
            values = [best(each[name][kind]) for each in repetitions]
            wins = sum(best(each["ablate"][kind]) < value for each, value in zip(repetitions, values, strict=True))
            cells += [f"{statistics.fmean(values):.3f}", "–" if name == "ablate" else f"{wins} of {len(values)}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    base = statistics.fmean(best([each["base"]]) for each in repetitions)
    lines.append(f"| base, not searched | {base:.3f} | | {base:.3f} | |")
    if space == "front":
        holds = [held(each["ablate"]["flops"]) for each in repetitions]
        lines.append(
            f"\nMembers of ablate's front that hold: {sum(h for h, _ in holds)} of {sum(n for _, n in holds)}."
        )
    return "\n".join(lines)


def loss(found: list[list[list[float]]]) -> float:
    """Mean over fresh seeds of the one model that a search found; infinite if it found none."""
    return min((statistics.fmean(seed[0] for seed in model) for model in found), default=float("inf"))


def area(found: list[list[list[float]]]) -> float:
    """Negated hypervolume below a loss of 6 nats and 2,048 cache bytes per token, as a share of that rectangle."""
    points = sorted((statistics.fmean(s[0] for s in m) / 6, m[0][1] / 2048) for m in found)
    covered, lowest = 0.0, 1.0
    for x, y in points:
        if x < 1 and y < lowest:
            covered, lowest = covered + (1 - x) * (lowest - y), y
    return -covered


def held(found: list[list[list[float]]]) -> tuple[int, int]:
    """Number of a front's members that are on the front of their fresh scores, and number of members."""
    means = {i: tuple(map(statistics.fmean, zip(*model, strict=True))) for i, model in enumerate(found)}
    return len(fronts(means, ["minimize", "minimize"])[0]) if means else 0, len(means)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--space", choices=("free", "tight", "front"), default="free")
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--flops", type=float, default=2.2e10)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    contest, done = Contest(options.store, options.space, options.flops, options.trials), []
    for seed in range(options.repetitions):
        done.append(repetition(contest, seed))
        (options.store / f"{options.space}.json").write_text(json.dumps(done))
        print(f"after {len(done)} repetitions\n{summary(done, options.space)}\n", flush=True)


if __name__ == "__main__":
    main()
