"""Searches compared on known functions with noise like that of seeds, without any training.

PYTHONPATH=. python docs/benchmarks/search_known.py --repetitions 10
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.trial import TrialState
from scipy.stats import wilcoxon

from ablate.searching.asking import seeds_of, suggest
from ablate.searching.racing import standings
from ablate.study.search_space import Params
from tests.ablate.known import NUMBERS, Known, bowl, search, spec_of, study_of

SPACE = NUMBERS.replace("}}", "}, n_layers: {range: [1, 6]}, block.ffn: {choice: [swiglu, gelu, relu2]}}")
NOISE = 0.15
"""Standard deviation between seeds; the functions range over about 5."""


def score(params: Params) -> tuple[float]:
    kinds = {"swiglu": 0.0, "gelu": 0.1, "relu2": 0.2}
    return (bowl(params)[0] + 0.1 * (params["n_layers"] - 3) ** 2 + kinds[params["block.ffn"]],)


def tight(params: Params) -> bool:
    """Whether layers times width is within 10 % of the base's: true for one random setting in twelve."""
    return abs(params["block.ffn.d_ff"] * params["n_layers"] - 12) <= 1.2


def free(_: Params) -> bool:
    return True


class Space(Known):
    """A test space that knows how far settings are from being legal."""

    def distances(self, params: Params) -> dict[str, float]:
        return {} if self.legal(params) else {"size": abs(params["block.ffn.d_ff"] * params["n_layers"] - 12) / 12}


def by_ablate(lab: Space, spec: Any, folder: Path, seed: int) -> Params:
    found, _ = search(lab, spec, folder, seed)
    return found.trials[standings(seeds_of(found.trials), ["minimize"]).order()[0]].params


def by_script(lab: Space, trials: int, sampler: Any, seed: int) -> Params:
    """optuna's loop; illegal settings are pruned at no cost."""
    study, rng, count = optuna.create_study(sampler=sampler), np.random.default_rng(seed), 0
    while count < trials:
        trial = study.ask()
        params = lab.space.draw(lambda path, axis: suggest(trial, path, axis))  # noqa: B023
        if not lab.legal(params):
            study.tell(trial, state=TrialState.PRUNED)
            continue
        study.tell(trial, score(params)[0] + NOISE * float(rng.normal()))
        count += 1
    return study.best_params


def compare(folder: Path, legal: Callable[[Params], bool], trials: int, repetitions: int) -> None:
    study = study_of(folder, SPACE)
    spec, lab = spec_of(study, trials=trials, race=0.2), Space(study, score, legal, noise=NOISE)
    found: dict[str, list[float]] = {"ablate": [], "tpe": [], "random": []}
    for seed in range(repetitions):
        found["ablate"].append(score(by_ablate(lab, spec, folder, seed))[0])
        found["tpe"].append(score(by_script(lab, trials, optuna.samplers.TPESampler(seed=seed), seed))[0])
        found["random"].append(score(by_script(lab, trials, optuna.samplers.RandomSampler(seed=seed), seed))[0])
    for name, values in found.items():
        wins = sum(ours < theirs for ours, theirs in zip(found["ablate"], values, strict=True))
        compared = "| |"
        if name != "ablate":
            compared = f"| {wins} of {len(values)} | {wilcoxon(found['ablate'], values).pvalue:.2g} |"
        print(f"| {legal.__name__} | {name} | {statistics.fmean(values):.3f} {compared}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--trials", type=int, default=30)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    print("| space | method | value found | ablate lower in | p |\n|---|---|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for legal in (free, tight):
            compare(Path(folder), legal, options.trials, options.repetitions)


if __name__ == "__main__":
    main()
