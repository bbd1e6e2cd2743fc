"""Ideas for better searches, simulated on the surrogate of search_known.py: pruners and samplers, where to start, and
short runs first.

PYTHONPATH=.:docs/benchmarks python docs/benchmarks/search_ideas.py defaults --repetitions 12  # also starts, fidelity
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import optuna
from optuna.samplers import TPESampler
from search_known import BASE, NOISES, SPACE, Space, Stepwise, by_script, early, free, score

from ablate.running.request import Request
from ablate.study.study import Study
from ablate.wings.search.search import Search
from ablate.wings.search.search_space import Params
from tests.ablate.known import search, spec_of, study_of

TRIALS, FIRST = 30, 1000


def searched(
    lab: Space, study: Study, seed: int, storage: object = None, **given: object
) -> tuple[optuna.Study, Search]:
    spec = spec_of(study, **{"trials": TRIALS, **given})
    return search(lab, spec, study.folder, seed, Stepwise(lab, 1), storage)


def say(name: str, differences: Sequence[float]) -> None:
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    print(f"| {name} | {statistics.fmean(differences):+.4f} ± {error:.4f} |", flush=True)


def defaults(study: Study, repetitions: int) -> None:
    """Pruners that judge from the first of five validations on, and samplers, against TPE with a median pruner."""
    lab, seeds = Space(study, score, free, noise=NOISES[0]), range(FIRST, FIRST + repetitions)
    median = optuna.pruners.MedianPruner()
    script = [best(by_script(lab, TRIALS, TPESampler(seed=seed), median, seed, 1)) for seed in seeds]
    rules: dict[str, dict[str, object]] = {"as it is": {}, "no pruner": {"pruner": None}}
    rules |= {f"halving by {n}": {"pruner": {"kind": "asha", "reduction_factor": n}} for n in (2, 3, 4)}
    alone = {"multivariate": False, "group": False}
    others = {"each setting by itself": alone, "best of 8 candidates": {"n_ei_candidates": 8}}
    others["20 random trials"] = {"n_startup_trials": 20}
    rules |= {name: {"sampler": {"kind": "tpe", **given}} for name, given in others.items()}
    for name, given in rules.items():
        found = [best(searched(lab, study, seed, **given)[0]) for seed in seeds]
        say(name, [ours - theirs for ours, theirs in zip(found, script, strict=True)])


def moved(decades: float, nats: float, ffn: float = 0.0) -> Callable[[Params], tuple[float]]:
    """The surrogate at another scale: the best rate moved by decades, widths by nats per doubling, kinds of FFN."""

    def at_scale(params: Params) -> tuple[float]:
        (value,) = score({**params, "train.lr": params["train.lr"] / 10**decades})
        kinds = {"swiglu": ffn, "gelu": -2 * ffn}
        return (value + nats * math.log2(params["d_model"] / 64) + kinds.get(params["block.ffn"], 0.0),)

    return at_scale


def starts(study: Study, repetitions: int) -> None:
    """The three best trials of a search at another scale as the first trials."""
    here = Space(study, score, free, noise=NOISES[0])
    alone = [best(searched(here, study, seed)[0]) for seed in range(repetitions)]
    for name, there in {"near": moved(0.2, 0.05, 0.01), "far": moved(0.5, 0.15, 0.01)}.items():
        found = []
        for seed in range(repetitions):
            earlier = searched(Space(study, there, free, noise=NOISES[0]), study, seed + 1000)[0].trials
            storage = optuna.storages.InMemoryStorage()
            begun = optuna.create_study(storage=storage, study_name="known")
            ended = [trial for trial in earlier if trial.value is not None]
            for trial in sorted(ended, key=lambda trial: trial.value)[:3]:
                begun.enqueue_trial(trial.params)
            found.append(best(searched(here, study, seed, storage)[0]))
        say(f"from a scale that is {name}", [ours - theirs for ours, theirs in zip(found, alone, strict=True)])


def best(found: optuna.Study) -> float:
    return score(found.best_params)[0]


class Short(Space):
    """A space whose trials are scored after a share of the budget."""

    def _value(self, request: Request) -> tuple[float, ...]:
        params, share = self.jobs[request.digest]
        (value,) = super()._value(request)
        return (value + early(params, share),)


def fidelity(study: Study, repetitions: int) -> None:
    """Short runs first, and what they cost in whole runs: promotions are asynchronous, so more than a third go on."""
    whole = Space(study, score, free, noise=NOISES[0])
    alone = [best(searched(whole, study, seed)[0]) for seed in range(repetitions)]
    for start, trials in ((1 / 3, 45), (1 / 9, 90)):
        found, costs, lab = [], list[float](), Short(study, score, free, noise=NOISES[0])
        for seed in range(repetitions):
            shares = {"start": start, "factor": 3}
            trained, one = searched(lab, study, seed, trials=trials, fidelity=shares)
            (number, _) = min(one.done[-1].items(), key=lambda item: item[1])
            found.append(score(trained.trials[number].params)[0])
            costs.append(sum(share * len(at) for share, at in zip(one.spec.shares, one.done, strict=True)))
        gains = [ours - theirs for ours, theirs in zip(found, alone, strict=True)]
        say(f"{trials} trials from {start:.0%} of the budget, {statistics.fmean(costs):.1f} whole runs", gains)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("idea", choices=("defaults", "starts", "fidelity"))
    parser.add_argument("--repetitions", type=int, default=40)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        ideas = {"defaults": defaults, "starts": starts, "fidelity": fidelity}
        ideas[options.idea](study_of(Path(folder), SPACE, *BASE), options.repetitions)


if __name__ == "__main__":
    main()
