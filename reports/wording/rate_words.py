"""How arms got their learning rates, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ablate.store.documents import StudyDocument, StudyPass, StudyTuning
from ablate.store.documents.study import RATE

SHARES = {1.0: "full length", 0.5: "half the length", 0.25: "a quarter of the length"}


def rates(study: StudyDocument) -> str:
    """`each arm at its own best rate (5 rates × 2 seeds at a quarter of the length)`, what goes with every answer."""
    if study.rates.how == "carried":
        return "rates carried" + (f", {study.rates.where}" if study.rates.where else "")
    if study.rates.how == "written" or not study.tuning:
        return "rates as written, not tuned"
    beyond = "".join(f"; {words}" for words in _unbracketed(study))
    return f"each arm at its own best {_what(study)} ({_trials(study)}){beyond}"


def sentence(study: StudyDocument) -> str:
    """What that means for the reader."""
    if study.rates.how == "carried":
        where = f" ({study.rates.where})" if study.rates.where else ""
        return f"Learning rates were tuned before{where}; the noise of that tuning is not in the intervals."
    if study.rates.how == "written" or not study.tuning:
        return "This study did not tune learning rates, which may suit one arm better than another."
    return f"Before the comparison, every arm tuned its {_what(study)}: {_trials(study)}, on separate seeds."


def _what(study: StudyDocument) -> str:
    paths = list(study.tuning[0].chosen)
    return "rate" if paths == [RATE] else ", ".join(path.removeprefix("train.") for path in paths)


def _trials(study: StudyDocument) -> str:
    """`3 rates × 2 seeds at full length, after 5 to 7 × 1 seed at a quarter of it`."""
    noun = "rates" if list(study.tuning[0].chosen) == [RATE] else "settings"
    last = f"{_count(study.tuning, noun)} at {share(study.tuning[0].fraction)}"
    coarse = [each.coarse[0] for each in study.tuning if each.coarse]
    return last + (f", after {_count(coarse, '')} at {share(coarse[0].fraction)}" if coarse else "")


def _count(passes: Sequence[StudyPass], noun: str) -> str:
    counts = [len(each.trials) for each in passes]
    count = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    seeds = len(passes[0].trials[0].losses)
    return f"{' '.join(filter(None, (count, noun)))} × {seeds} seed{'' if seeds == 1 else 's'}"


def share(fraction: float) -> str:
    """`a quarter of the length`."""
    return SHARES.get(fraction, f"{100 * fraction:g} % of the length")


def _unbracketed(study: StudyDocument) -> Iterator[str]:
    """`the best rate of post lies beyond the highest tried, 0.12`."""
    for each in study.tuning:
        if RATE in each.edges:
            yield f"the best rate of {each.arm} lies beyond the {edge(each)} tried, {each.rate:g}"


def edge(tuning: StudyTuning) -> str:
    """`lowest` or `highest`, of an arm whose best rate is at an edge."""
    return "lowest" if tuning.rate == min(tuning.rates) else "highest"
