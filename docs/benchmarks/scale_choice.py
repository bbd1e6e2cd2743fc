"""How well each small scale of scale_choice.yaml predicts its target, and at what price, as Markdown.

    python docs/benchmarks/scale_choice.py STORE

Losses are in bits per byte, so that vocabularies compare. With d_ab the difference of two arms, averaged over seeds:

    foresight   Σ |d_ab| [sign d_ab at the scale = sign d_ab at the target] / Σ |d_ab|     |d_ab|: at the target
    pairs       the same with every pair counting once
    price       2 · runs · FLOPs of a run, runs = (2.8 σ / d)²: compute after which an arm's own difference from the
                baseline is found at 5 % with 80 % power; the median over arms
    error       √mean((d(scale) − d(target))²) over arms, d: an arm's difference from the baseline
    σ           √mean((d₁ − d₂)² / 2) over arms, d₁ and d₂ the paired differences of two seeds

An interval of foresight resamples arms, since pairs share them.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from statistics import fmean, median

import numpy as np

from reports.judge.reading.documents import StudyDocuments
from store import Store

TARGET, BASELINE = "target", "base"
Losses = dict[str, dict[int, float]]
"""Bits per byte by arm and seed."""


def losses(store: Store, scale: str) -> Losses:
    """The finished runs of a scale."""
    study = store.study("scale_choice", scale).read()
    found: Losses = defaultdict(dict)
    for arm in study.arms if study else ():
        for run in arm.runs:
            result = store.read_result(run.digest)
            if result is not None and result.bits_per_byte is not None:
                found[arm.name][run.seed] = result.bits_per_byte
    return dict(found)


def means(of: Losses) -> dict[str, float]:
    return {arm: fmean(seeds.values()) for arm, seeds in of.items()}


def foresight(here: dict[str, float], there: dict[str, float], arms: list[str], weighted: bool = True) -> float:
    """Share of pairs in the target's order, weighted by their difference there. Arms may be repeated."""
    right = whole = 0.0
    for a, b in combinations(arms, 2):
        gap = there[a] - there[b]
        weight = abs(gap) if weighted else float(gap != 0)
        whole += weight
        right += weight * ((here[a] - here[b]) * gap > 0)
    return right / whole if whole else math.nan


def interval(here: dict[str, float], there: dict[str, float], arms: list[str]) -> tuple[float, float]:
    """95 % interval of foresight over resampled arms."""
    draw = np.random.default_rng(0)
    drawn = [foresight(here, there, list(draw.choice(arms, len(arms)))) for _ in range(2000)]
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def misjudged(here: dict[str, float], there: dict[str, float], arms: list[str]) -> float:
    """Root mean square of what differences from the baseline are away from the target's."""
    gaps = [here[arm] - here[BASELINE] - (there[arm] - there[BASELINE]) for arm in arms if arm != BASELINE]
    return math.sqrt(fmean(gap**2 for gap in gaps))


def paired(of: Losses) -> dict[str, list[float]]:
    """Differences from the baseline by arm, one for each seed that both have."""
    base = of[BASELINE]
    return {
        arm: [loss - base[seed] for seed, loss in seeds.items() if seed in base]
        for arm, seeds in of.items()
        if arm != BASELINE
    }


def noise(differences: dict[str, list[float]]) -> float:
    """Standard deviation of a paired difference; NaN with one seed."""
    squares = [(each[0] - each[1]) ** 2 / 2 for each in differences.values() if len(each) > 1]
    return math.sqrt(fmean(squares)) if squares else math.nan


def above_bigrams(store: Store, scale: str) -> float:
    """The baseline's loss minus that of bigrams of as many tokens as a run reads, in nats per token."""
    documents = StudyDocuments.of(store.study("scale_choice", scale).path, store)
    (arm,) = (arm for arm in documents.study.arms if arm.name == BASELINE)
    found = fmean(result.loss for run in arm.runs if (result := store.read_result(run.digest)) and result.loss)
    return found - documents.references[BASELINE].read.bigram


HEAD = ("arms", "seeds", "base, bits per byte", "above bigrams", "σ", "TFLOP", "price", "foresight", "pairs", "error")


def row(store: Store, scale: str) -> tuple[str, ...]:
    """One scale against the target. `pairs` is foresight without weights; compute is in TFLOP."""
    of, there = losses(store, scale), means(losses(store, TARGET))
    here = means(of)
    arms = sorted(here.keys() & there.keys())
    differences = paired(of)
    sd = noise(differences)
    study = store.study("scale_choice", scale).read()
    tera = study.arm(BASELINE).flops / 1e12 if study else math.nan
    price = median(2 * (2.8 * sd / fmean(each)) ** 2 * tera for each in differences.values() if each)
    low, high = interval(here, there, arms)
    return (
        str(len(arms)),
        str(min(map(len, of.values()))),
        f"{here[BASELINE]:.3f}",
        f"{above_bigrams(store, scale):+.2f}",
        f"{sd:.4f}",
        f"{tera:.2f}",
        f"{price:.2g}",
        f"{foresight(here, there, arms):.0%} ({low:.0%} to {high:.0%})",
        f"{foresight(here, there, arms, weighted=False):.0%}",
        f"{misjudged(here, there, arms):.3f}",
    )


def effects(store: Store, scales: list[str]) -> list[str]:
    """Difference of each arm from the baseline at every scale, in bits per byte."""
    known = {scale: paired(losses(store, scale)) for scale in (TARGET, *scales)}
    arms = list(known[TARGET])
    head = f"| arm | {' | '.join(known)} |\n|---{'|--:' * len(known)}|"
    lines = [
        f"| {arm} | {' | '.join(f'{fmean(of[arm]):+.3f}' if of.get(arm) else '–' for of in known.values())} |"
        for arm in arms
    ]
    return [head, *lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    store = Store(parser.parse_args().store)
    here = [each.scale for each in store.study_documents() if each.name == "scale_choice" and each.scale != TARGET]
    print(f"| scale | {' | '.join(HEAD)} |\n|---{'|--:' * len(HEAD)}|")
    for scale in here:
        print(f"| {scale} | {' | '.join(row(store, scale))} |")
    print("\n" + "\n".join(effects(store, here)))


if __name__ == "__main__":
    main()
