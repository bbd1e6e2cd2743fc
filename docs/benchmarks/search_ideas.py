"""Ideas for better searches, simulated on the surrogate of search_known.py: when to repeat leaders, where to start, and
short runs first.

PYTHONPATH=.:docs/benchmarks python docs/benchmarks/search_ideas.py races --repetitions 80     # also starts, fidelity
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import optuna
from search_known import BASE, NOISES, SPACE, Space, free, score

from ablate.running.request import Request
from ablate.study.study import Study
from ablate.wings.search.asking import seeds_of
from ablate.wings.search.racing import standings
from ablate.wings.search.search import Search
from ablate.wings.search.search_space import Params
from tests.ablate.known import Instant, search, spec_of, study_of

TRIALS, DRAWS = 30, 10


def searched(
    lab: Space, study: Study, seed: int, storage: object = None, **given: object
) -> tuple[optuna.Study, Search]:
    spec = spec_of(study, **{"trials": TRIALS, **given})
    return search(lab, spec, study.folder, seed, Instant(workers=1), storage)


def say(name: str, differences: Sequence[float]) -> None:
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    print(f"| {name} | {statistics.fmean(differences):+.4f} ± {error:.4f} |", flush=True)


def races(study: Study, repetitions: int) -> None:
    """Repeats in place of the last new settings: as they come last, the settings before them are the same."""
    rules = {"a fifth, always": (0.2, math.inf), "a fifth, within 2 σ": (0.2, 2.0), "a fifth, within 1 σ": (0.2, 1.0)}
    rules |= {"a tenth, within 2 σ": (0.1, 2.0), "a tenth, within 1 σ": (0.1, 1.0)}
    for noise in NOISES:
        gains: dict[str, list[float]] = {name: [] for name in rules}
        for seed in range(repetitions):
            trials = searched(Space(study, score, free, noise=noise), study, seed)[0].trials
            kept = [trial for trial in trials if trial.value is not None]
            seen, true = [trial.value or 0.0 for trial in kept], [score(trial.params)[0] for trial in kept]
            without = true[int(np.argmin(seen))]
            for name, rule in rules.items():
                draws = [replayed(seen, true, noise, *rule, np.random.default_rng([seed, n])) for n in range(DRAWS)]
                gains[name].append(statistics.fmean(draws) - without)
        for name, of in gains.items():
            say(f"σ {noise}: {name}", of)


def replayed(
    seen: Sequence[float], true: Sequence[float], noise: float, share: float, close: float, rng: np.random.Generator
) -> float:
    """True value of the setting called best by mean score, if the end of a search goes to leaders that are close."""
    scores: list[list[float]] = []
    for used in range(len(seen)):
        means = [statistics.fmean(of) for of in scores]
        order = sorted(range(len(scores)), key=means.__getitem__)[:5]

        def is_close(n: int) -> bool:
            error = noise * math.sqrt((1 / len(scores[n]) + 1 / len(scores[order[0]])) / 2)  # noqa: B023
            return means[n] - means[order[0]] <= close * error  # noqa: B023

        near = [n for n in order if is_close(n)]
        if used < (1 - share) * len(seen) or len(near) < 2:
            scores.append([seen[len(scores)]])
        else:
            least = min(near, key=lambda n: len(scores[n]))
            scores[least].append(true[least] + noise * float(rng.normal()))
    return true[int(np.argmin([statistics.fmean(of) for of in scores]))]


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
    alone = [best(searched(here, study, seed, race=0.1)[0]) for seed in range(repetitions)]
    for name, there in {"near": moved(0.2, 0.05, 0.01), "far": moved(0.5, 0.15, 0.01)}.items():
        found = []
        for seed in range(repetitions):
            earlier = searched(Space(study, there, free, noise=NOISES[0]), study, seed + 1000, race=0.1)[0].trials
            storage = optuna.storages.InMemoryStorage()
            begun = optuna.create_study(storage=storage, study_name="known")
            for number in standings(seeds_of(earlier), ["minimize"], NOISES[0]).order()[:3]:
                begun.enqueue_trial(earlier[number].params)
            found.append(best(searched(here, study, seed, storage, race=0.1)[0]))
        say(f"from a scale that is {name}", [ours - theirs for ours, theirs in zip(found, alone, strict=True)])


def best(found: optuna.Study) -> float:
    number = standings(seeds_of(found.trials), ["minimize"], NOISES[0]).order()[0]
    return score(found.trials[number].params)[0]


class Short(Space):
    """Short runs prefer higher rates and smaller models, and differ by 0.03 nats of their own."""

    def _value(self, request: Request) -> tuple[float, ...]:
        params, share = self.jobs[request.digest]
        (value,) = super()._value(request)
        early = -math.log(share) / math.log(9)
        own = np.random.default_rng(zlib.crc32(repr(sorted(params.items())).encode())).normal()
        (at_share,) = moved(0.2 * early, 0.05 * early)(params)
        return (value - score(params)[0] + at_share + early * 0.03 * float(own),)


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
    parser.add_argument("idea", choices=("races", "starts", "fidelity"))
    parser.add_argument("--repetitions", type=int, default=40)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        ideas = {"races": races, "starts": starts, "fidelity": fidelity}
        ideas[options.idea](study_of(Path(folder), SPACE, *BASE), options.repetitions)


if __name__ == "__main__":
    main()
