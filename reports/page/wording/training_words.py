"""Training of a study's arms, in words: inputs, lengths, and the source of learning rates."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from reports.judge.findings.study_summary import ArmSummary, StudySummary
from reports.judge.reading.documents import Inputs
from reports.judge.sentences import listed, prefixed_range
from reports.judge.statistics.estimates import Interval
from store.documents import StudyArm, StudyDocument, StudyPass, StudyTuning, study_arm
from store.documents.study_arm import taught_by
from store.documents.tuning import RATE, share, trials, untuned


def rates(study: StudyDocument) -> str:
    """Qualifier of every answer: `each arm at its own best learning rate (5 rates × 2 seeds at full length)`."""
    if study.rates.how == "carried":
        return f"{untuned(study.rates)}; their noise is not in the intervals"
    if study.rates.how == "written" or not study.tuning:
        return untuned(study.rates)
    beyond = ""  # arms whose tuning found no bounded optimum
    for each in study.tuning:
        if not each.trains:
            beyond += f"; {each.arm} trained with none of those tried"
        elif RATE in each.edges:
            beyond += f"; the best rate of {each.arm} lies beyond the {edge(each)} tried, {each.rate:g}"
    return f"each arm at its own best {_what(study)} ({_trials(study)}){beyond}"


def line(study: StudyDocument) -> str:
    """`rates` as a sentence."""
    text = rates(study)
    return f"{text[0].upper()}{text[1:]}."


def sentence(study: StudyDocument) -> str:
    """Consequence of the tuning, or of its absence, for the reader."""
    if study.rates.how == "carried":
        where = f" ({study.rates.where})" if study.rates.where else ""
        return f"Learning rates were tuned before{where}; the noise of that tuning is not in the intervals."
    if study.rates.how == "written" or not study.tuning:
        return "This study did not tune learning rates, which may suit one arm better than another."
    room = "Intervals allow for what the noise of tuning may have cost an arm."
    return f"Before the comparison, every arm tuned its {_what(study)}: {_trials(study)}, on separate seeds. {room}"


def beyond(study: StudyDocument) -> str:
    """Reason why an interval is unbounded on one side, or on both."""
    untrained = [each.arm for each in study.tuning if not each.trains]
    if untrained and not any(each.edges for each in study.tuning if each.trains):
        return f"{listed(untrained)} trained with none of the settings tried"
    return f"a best {'learning rate' if _alone(study) else 'setting'} lies beyond those tried"


def _alone(study: StudyDocument) -> bool:
    """Whether only learning rates were tuned."""
    return list(study.tuning[0].chosen) == [RATE]


def _what(study: StudyDocument) -> str:
    return "learning rate" if _alone(study) else ", ".join(p.removeprefix("train.") for p in study.tuning[0].chosen)


def _trials(study: StudyDocument) -> str:
    """`3 rates × 2 seeds at full length, after 5 to 7 rates × 1 seed at a quarter of the length`."""
    noun = "rates" if _alone(study) else "settings"
    coarse = [each.coarse[0] for each in study.tuning if each.coarse]
    return _of_arms(study.tuning, noun) + (f", after {_of_arms(coarse, noun)}" if coarse else "")


def _of_arms(passes: Sequence[StudyPass], noun: str) -> str:
    """`5 to 7 rates × 1 seed at a quarter of the length`: one tuning pass of every arm."""
    counts = [len(each.trials) for each in passes]
    return trials(counts, noun, len(passes[0].trials[0].losses), passes[0].fraction)


def edge(tuning: StudyTuning) -> str:
    """`lowest` or `highest`, for an arm whose best rate is at an edge."""
    return "lowest" if tuning.rate == min(tuning.rates) else "highest"


def taken(name: str, tuning: StudyTuning, interval: Interval | None) -> str:
    """`post: train.lr 0.017 (95 % interval 0.014 to 0.021). The best tried at a quarter of the length: 0.011.`"""
    chosen = ", ".join(f"{path} {json.dumps(value)}" for path, value in tuning.chosen.items())
    sure = f" (95 % interval {interval.low:.3g} to {interval.high:.3g})" if interval else ""
    why = f": {tuning.reason}" if tuning.reason else ""
    first = "".join(f" The best tried at {share(each.fraction)}: {_best(each)}." for each in tuning.coarse)
    stalled = ""
    for trial in tuning.trials if tuning.trains else ():
        if trial.stalled:
            at = ", ".join(f"{path} {json.dumps(value)}" for path, value in trial.settings.items())
            stalled += f" At {at}, {trial.stalled} of {len(trial.losses)} seeds stalled."
    return f"{name}: {chosen}{sure}{why}.{stalled}{first}"


def _best(found: StudyPass) -> str:
    if not found.trains:
        return "none, no seed trained"
    known = [(trial.loss, trial.settings) for trial in found.reliable if trial.loss is not None]
    return json.dumps(min(known, key=lambda each: each[0])[1][RATE]) if known else "none, a seed diverged at each"


def warnings(name: str, tuning: StudyTuning) -> Iterator[str]:
    """Warnings of arms whose best setting may lie beyond those tried, and so may be better than they appear."""
    if not tuning.trains:
        yield f"{name}: every seed diverged or stalled with all settings tried, so its best loss is unknown."
        return
    for path in tuning.edges:
        value = json.dumps(tuning.chosen[path])
        yield f"{name}: its best {path} ({value}) is at the edge of the values tried, so better values may exist."
    if all(trial.loss is None for trial in tuning.trials):
        yield f"{name}: a seed diverged with each of the settings tried."


def carried_lines(study: StudyDocument) -> str | None:
    """Lines of a study file that carry the tuned rates; None if other settings were tuned, or if sizes have rates of
    their own."""
    tunings = {each.arm: each for each in study.tuning}
    if any(list(each.chosen) != [RATE] for each in study.tuning) or any(r.axis == "size" for r in study.ladder):
        return None
    others = ", ".join(f"{arm}.{RATE}: {each.rate:g}" for arm, each in tunings.items() if arm != study.baseline)
    lines = (
        f"tune: {{carried: report of {study.name} tuned {study.created[:10]}}}",
        f"{RATE}: {tunings[study.baseline].rate:g}",
        f"arms: {{{others}}}",
    )
    return f"scales:\n  {study.scale}:\n" + "".join(f"    {line}\n" for line in lines)


SOURCES = {
    "prose": "English prose",
    "stdlib": "Python's standard library",
    "files": "the study’s own text files",
    "tokens": "the study’s own token files",
    "mixture": "a mixture of texts",
}
"""Sources whose names do not explain themselves. Other sources are data sets and synthetic tasks."""


def inputs(found: Inputs) -> Iterator[str]:
    """`English prose`, `vocabulary 1,024`, `context 128`, as far as known."""
    if found.sources:
        yield " and ".join(map(source, found.sources))
    for name, values in (("vocabulary", found.vocabularies), ("context", found.contexts)):
        if values:
            yield f"{name} {' to '.join(dict.fromkeys(f'{each:,}' for each in (values[0], values[-1])))}"


def source(name: str) -> str:
    return SOURCES.get(name, name)


def undertrained(study: StudyDocument) -> str:
    """` Undertrained: …`, appended to the answer that it qualifies; empty if every arm trained long enough."""
    found = study_arm.undertrained({arm.name: arm.length for arm in study.arms})
    return f" {found}" if found else ""


def conditions(study: StudyDocument) -> str:
    """Conditions of an answer: `57 k parameters, 20 tokens per parameter, learning rates not tuned`."""
    return f"{', '.join(_size_and_length(study))}{_checkpoints(study)}, {rates(study)}"


def scale_of(study: StudyDocument) -> str:
    """`57 k parameters · 20 tokens per parameter`."""
    return f"{' · '.join(_size_and_length(study))}{_checkpoints(study)}"


def _size_and_length(study: StudyDocument) -> tuple[str, str]:
    sizes = prefixed_range([arm.parameters_non_embedding for arm in study.arms])
    lengths = prefixed_range([arm.length.tokens_per_parameter for arm in study.arms])
    return f"{sizes} parameters", f"{lengths} tokens per parameter"


def _checkpoints(study: StudyDocument) -> str:
    """` on top of the checkpoint SmolLM2`, with the arms' names if other arms have no checkpoint."""
    named: dict[str, list[str]] = {}
    for arm in study.arms:
        if arm.checkpoint:
            named.setdefault(arm.checkpoint, []).append(arm.name)
    every = any(len(names) == len(study.arms) for names in named.values())
    found = (f"{path}{'' if every else f' ({listed(names)})'}" for path, names in named.items())
    return f" on top of the checkpoint {'; '.join(found)}" if named else ""


def trained(arm: StudyArm, train_tokens: int | None) -> str:
    """`pre: 543 steps, 20 tokens per parameter, 0.3 epochs.`"""
    epochs = "" if not train_tokens else f", {arm.tokens / train_tokens:.2g} epochs"
    per_parameter = f"{arm.length.tokens_per_parameter:.3g} tokens per parameter"
    source = f", from the checkpoint {arm.checkpoint}" if arm.checkpoint else ""
    if arm.teacher:
        source += f", {taught_by(arm.teacher)}"
    return f"{arm.name}: {arm.steps:,} steps{source}, {per_parameter}{epochs}."


MATCHED = {"flops": "FLOPs", "seconds": "training time"}


def matched(summary: StudySummary) -> str:
    return f"at equal {' and '.join(MATCHED.get(part, part) for part in summary.study.matched.split(' and '))}"


def terms(summary: StudySummary, arm: ArmSummary) -> str:
    """`at equal FLOPs`, or the tokens that an arm started from another spent beyond that arm's training."""
    source = dict(arm.edits).get("start.arm")
    if source is None:
        return matched(summary)
    share = 100 * arm.planned.tokens / summary.baseline_arm.planned.tokens
    return f"after {share:.3g} % of the baseline’s tokens, on top of the training of {json.loads(source)}"


def but_for(summary: StudySummary) -> str:
    """Exception for the arms to which `matched` does not apply."""
    found = [arm.name for arm in summary.arms if "start.arm" in dict(arm.edits)]
    return f", except {listed(found)}, which started from another arm" if found else ""


def continued(summary: StudySummary) -> str:
    """`continuing from trained` if all compared arms start from one arm; else empty."""
    sources = {dict(arm.edits).get("start.arm") for arm in summary.arms if arm.name != summary.baseline}
    (source,) = sources if len(sources) == 1 else (None,)
    return f"continuing from {json.loads(source)}" if source else ""
