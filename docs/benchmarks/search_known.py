"""Searches compared on a surrogate of ten axes with noise like that of seeds, without any training.

PYTHONPATH=. python docs/benchmarks/search_known.py --repetitions 40
"""

from __future__ import annotations

import argparse
import functools
import math
import statistics
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.trial import TrialState
from scipy.stats import wilcoxon

from ablate.running.engines import Event
from ablate.running.request import Request
from ablate.wings.search.asking import suggest
from ablate.wings.search.search_space import Params
from ablate.wings.search.trial_runner import Job
from tests.ablate.known import ENDED, Instant, Known, search, spec_of, study_of

SPACE = """{
  block.norm_placement: [pre, post, double], block.ffn: {choice: [swiglu, geglu, gelu, relu2]},
  block.ffn.d_ff: {ratio: [1x, 8x], step: 0.5}, block.mixer.heads: [2, 4, 8], block.mixer.kv_heads: [1, 2, 4, 8],
  pattern: {choice: [[block], [local, block], [local, local, local, block]]}, d_model: {range: [32, 96], step: 16},
  n_layers: {range: [1, 4]}, train.lr: {log: [5e-4, 3e-2]}, train.warmup: {range: [0.0, 0.4]}}"""
BASE = ["base.blocks={local: {mixer.window: 8}}", "train={context: 64}"]
VALIDATIONS = 5
NOISES = (0.015, 0.06)
"""Standard deviations between seeds, in nats: of a model of 0.1 M parameters, and of one of a few thousand."""


def score(params: Params) -> tuple[float]:
    """A loss, lowest at about 2.27. The best rate depends on width, depth and norm placement."""
    width, depth, ratio = math.log2(params["d_model"] / 64), math.log2(params["n_layers"] / 2), params["block.ffn.d_ff"]
    placement, heads, kv_heads = (
        params[f"block.{name}"] for name in ("norm_placement", "mixer.heads", "mixer.kv_heads")
    )
    best_rate = math.log10(9e-3) - 0.25 * width - 0.08 * (params["n_layers"] - 2) - 0.15 * (placement == "post")
    far = math.log10(params["train.lr"]) - best_rate
    size = 2 * width + depth + 0.6 * math.log2((2 + ratio) / 6)
    return (
        2.24
        + (0.55 if far < 0 else 0.9) * far**2 * {"pre": 1.0, "double": 0.8, "post": 1.5}[placement]
        + 0.05 * (size - 0.3) ** 2
        + 0.04 * (width - 0.2) ** 2
        + 0.03 * depth**2
        + {"swiglu": 0.0, "geglu": 0.004, "gelu": 0.03, "relu2": 0.012}[params["block.ffn"]]
        + 0.012 * math.log2(ratio / 3) ** 2
        + 0.010 * (math.log2(heads) - 2) ** 2
        + 0.012 * max(0.0, math.log2(heads / kv_heads))
        + (0.02, 0.0, 0.006, 0.006)[params["pattern"].count("local")]
        + {"pre": 0.0, "double": 0.008, "post": 0.03}[placement]
        + (0.5 if placement == "post" else 0.25) * (params["train.warmup"] - 0.12) ** 2,
    )


def free(params: Params) -> bool:
    return bool(params["block.mixer.heads"] % params["block.mixer.kv_heads"] == 0)


def far_off(params: Params) -> float:
    """Relative distance of the parameters from within 5 % of the base's, counted roughly."""
    size = params["d_model"] ** 2 * params["n_layers"] * (4 + 3 * params["block.ffn.d_ff"])
    return max(0.0, abs(size / (64**2 * 2 * 16) - 1) - 0.05)


def tight(params: Params) -> bool:
    """True for one random setting in forty."""
    return free(params) and far_off(params) == 0


def early(params: Params, share: float) -> float:
    """Excess of the loss after a share of the budget. Short runs prefer higher rates and smaller models, and models
    differ by 0.03 nats of their own: for a fifth of a run, ranks are about those of trained toys (ρ 0.8 to 0.9)."""
    decades = -math.log(share) / math.log(9)
    (moved,) = score({**params, "train.lr": params["train.lr"] / 10 ** (0.2 * decades)})
    place = max(1, round(share * VALIDATIONS))
    walk = _own(repr(sorted(params.items())))[:place].sum() / math.sqrt(place)
    return float(moved - score(params)[0] + decades * (1 + 0.05 * math.log2(params["d_model"] / 64) + 0.03 * walk))


@functools.cache
def _own(params: str) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(params.encode())).normal(size=VALIDATIONS)


class Space(Known):
    """A test space that knows how far settings are from being legal, and losses on the way."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.validated: dict[str, int] = {}
        self._curves: dict[str, list[float]] = {}

    def distances(self, params: Params) -> dict[str, float]:
        heads = {} if free(params) else {"heads": 1.0}
        return {} if self.legal(params) else {**heads, **({"size": far_off(params)} if self.legal is tight else {})}

    def curve(self, job: Job) -> list[float]:
        (digest,) = job.digests
        if digest not in self._curves:
            (value,), (params, _) = self.values(job), self.jobs[digest]
            self._curves[digest] = [value + early(params, (n + 1) / VALIDATIONS) for n in range(VALIDATIONS)]
        return self._curves[digest][: self.validated.get(digest, 0)]


class Stepwise(Instant):
    """An engine whose workers take turns, a validation each."""

    def __init__(self, lab: Space, workers: int) -> None:
        super().__init__(workers=workers)
        self.lab = lab

    def run(self, requests: Iterable[Request | None], meanwhile: Callable[[], None]) -> Iterator[Event | None]:
        busy, waiting, over = list[str](), iter(requests), False
        while busy or not over:
            while len(busy) < self.workers and not over:
                request = next(waiting, self)
                over = request is self
                if not isinstance(request, Request):
                    break
                busy.append(request.digest)
                yield Event("started", request.digest)
            for digest in list(busy):
                self.lab.validated[digest] = self.lab.validated.get(digest, 0) + 1
                meanwhile()
                is_whole = self.lab.validated[digest] == VALIDATIONS
                if is_whole or digest in self.stopped:
                    busy.remove(digest)
                    ENDED.update([digest] if is_whole else [])
                    yield Event("finished" if is_whole else "failed", digest)


def by_ablate(lab: Space, spec: Any, folder: Path, seed: int, workers: int) -> optuna.Study:
    return search(lab, spec, folder, seed, Stepwise(lab, workers))[0]


def by_script(lab: Space, trials: int, sampler: Any, pruner: Any, seed: int, workers: int) -> optuna.Study:
    """optuna's loop; illegal settings are pruned at no cost, others count for the share that was trained."""
    study, rng, cost = optuna.create_study(sampler=sampler, pruner=pruner), np.random.default_rng(seed), 0.0
    running: list[tuple[optuna.Trial, Params, float]] = []
    while running or cost <= trials - 1 + 1e-6:
        while len(running) < workers and cost + len(running) <= trials - 1 + 1e-6:
            trial = study.ask()
            params = lab.space.draw(lambda path, axis: suggest(trial, path, axis))  # noqa: B023
            if lab.legal(params):
                running.append((trial, params, score(params)[0] + lab.noise * float(rng.normal())))
            else:
                study.tell(trial, state=TrialState.PRUNED)
        for each in list(running):
            trial, params, value = each
            step = 1 + len(study.get_trials(deepcopy=False)[trial.number].intermediate_values)
            trial.report(value + early(params, step / VALIDATIONS), step)
            is_whole = step == VALIDATIONS
            if is_whole or trial.should_prune():
                running.remove(each)
                cost += step / VALIDATIONS
                study.tell(trial, value if is_whole else None, TrialState.COMPLETE if is_whole else TrialState.PRUNED)
    return study


def compare(folder: Path, legal: Callable[[Params], bool], noise: float, options: argparse.Namespace) -> None:
    study = study_of(folder, SPACE, *BASE)
    lab, trials = Space(study, score, legal, noise=noise), options.trials
    ours: list[float] = []

    def row(name: str, workers: int, found: Callable[[int], optuna.Study]) -> None:
        studies = [found(seed) for seed in range(options.repetitions)]
        values = [score(study.best_params)[0] for study in studies]
        whole = [study.get_trials(deepcopy=False, states=[TrialState.COMPLETE]) for study in studies]
        tried = statistics.fmean(min(score(trial.params)[0] for trial in ended) for ended in whole)
        compared = "| |"
        if ours:
            wins, p = sum(map(float.__lt__, ours, values)), wilcoxon(ours, values).pvalue
            compared = f"| {wins} of {len(values)} | {p:.2g} |"
        else:
            ours.extend(values)
        mean, error = statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))
        print(
            f"| {legal.__name__} | {noise} | {name} | {workers} | {mean:.4f} ± {error:.4f} | {tried:.4f} {compared}",
            flush=True,
        )

    spec, tpe, none = spec_of(study, trials=trials), optuna.samplers.TPESampler, optuna.pruners.NopPruner()
    scripts: dict[str, tuple[Any, Any]] = {
        "TPE and median pruner": (tpe, optuna.pruners.MedianPruner()),
        "TPE": (tpe, none),
        "random": (optuna.samplers.RandomSampler, none),
    }
    for workers in options.workers:
        row("`ablate search`", workers, lambda seed: by_ablate(lab, spec, folder, seed, workers))  # noqa: B023
        for name in options.scripts:
            sampler, pruner = scripts[name]
            row(name, workers, lambda seed: by_script(lab, trials, sampler(seed=seed), pruner, seed, workers))  # noqa: B023


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--workers", nargs="+", type=int, default=(1, 2))
    parser.add_argument("--scripts", nargs="*", default=("TPE and median pruner", "TPE", "random"))
    parser.add_argument("--spaces", nargs="+", choices=("free", "tight"), default=("free", "tight"))
    parser.add_argument("--noises", nargs="+", type=float, default=NOISES)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    print("| space | σ | method | workers | value found | best that was tried | first row lower in | p |")
    print("|---|--:|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for space in options.spaces:
            for noise in options.noises:
                compare(Path(folder), {"free": free, "tight": tight}[space], noise, options)


if __name__ == "__main__":
    main()
