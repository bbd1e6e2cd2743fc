"""Method of the verdicts, and the smallest detectable difference, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from reports.judge.findings.judging import as_one, looks_at
from reports.judge.findings.study_summary import StudySummary
from reports.judge.noise.power import FUTILE
from reports.judge.sentences import listed
from reports.judge.statistics.ledger import share
from reports.judge.verdicts import ALPHA
from reports.page.wording import arm_words, effect_words, words
from store.documents import LedgerRecord, LedgerTest
from store.documents.study_arm import LIMITS


def bars(summary: StudySummary) -> str:
    """Meaning of bars in figures and of ±, common to the whole page."""
    what = "effects" if summary.effects else f"differences from {summary.baseline}"
    measured = [each.comparison.costs for each in summary.judgements]
    costs = ""
    if any(found.training or found.decoding for found in measured):
        costs = (
            " Intervals of speeds are over processes in which the arms took turns in a random order, and are corrected"
            " for all arms and kinds of cost together."
        )
    return (
        f"Bars and ± are 95 % intervals over seeds. Those of {what} are the ones that verdicts use: they include the "
        "scatter of held-out documents where document losses are known, and are corrected for everything judged "
        "together. Shaded bands are ranges over seeds."
        f"{costs}"
    )


def noise(summary: StudySummary) -> str:
    """The noise floor: the scatter of seeds, and the smallest difference that stands out from it."""
    loss, paired = summary.noise.loss_sd, summary.noise.difference_sd
    if loss is None:
        return "Seed noise unknown: no arm has two finished seeds."
    text = f"Seed noise, as a standard deviation over seeds: {words.nats(loss)} for the loss"
    if paired is None or summary.noise.detectable is None:
        return f"{text}."
    of = "effects" if summary.effects else "paired differences"
    return f"{text}, {words.nats(paired)} for {of}. {detectable(summary)}".strip()


def detectable(summary: StudySummary) -> str:
    """Smallest detectable difference, from the most to the least sensitive comparison; empty if unknown."""
    if summary.noise.detectable is None:
        return ""
    least, most = (f"{words.detectable(each)} nats" for each in summary.noise.detectable)
    seen = most if least == most else f"between {least} and {most}, depending on the arm"
    return f"Four of five such studies would find a difference of {seen}; smaller ones are found less often."


def method(summary: StudySummary) -> str:
    """Method of the verdicts, in words."""
    parts = list(effect_words().method(summary)) if summary.effects else _compared(summary)
    if summary.study.objective is not None:
        kind, counts = summary.study.objective.kind, summary.study.objective.counts
        bytes_ = "bits per byte are over the bytes of these"
        parts.insert(0, f"The loss is that of the objective {kind}, a mean over {counts}; {bytes_}.")
    if summary.study.looks:
        looks = ", ".join(str(look.seeds) for look in summary.study.looks)
        who = "Effects" if summary.effects else "Arms"
        parts.append(
            f"{who} may be judged several times, at {looks} seeds; these looks share the 5 % error rate, and arms that "
            f"the seeds left would settle with a chance below {100 * FUTILE:.0f} % get no more."
        )
    # earlier judgements of the question that this page does not show
    shown = {_key(test) for test in summary.tests}
    ledger, _ = as_one(summary.tests, summary.ledger, summary.elsewhere)
    judged = {_key(test): test.arm for record in ledger for test in record.tests}
    others = dict.fromkeys(name for key, name in judged.items() if key not in shown)
    counted = f"The correction includes earlier tests of this question: {listed(list(others))}." if others else ""
    earlier = filter(None, [look(summary, again=bool(others)), _first_judged(summary, ledger), counted])
    return " ".join([*parts, arm_words.reliability(summary), *earlier]).strip()


def _compared(summary: StudySummary) -> list[str]:
    """Method of comparing arms against the baseline."""
    # without tuning, "right" holds for these learning rates only
    but_tuning = "" if summary.study.rates.how == "tuned" else " at these learning rates"
    gaps = [each.comparison.gap for each in summary.judgements if each.comparison.gap is not None]
    over = ", over seeds: they hold for this held-out text"
    if any(gap.shared for gap in gaps):
        over = ", with the scatter of held-out documents added to that of seeds"
    parts = [
        f"Differences are those of the means over all seeds, against {summary.baseline}; what an arm and the baseline "
        "share on common seeds cancels.",
        "The noise of each arm is estimated from its own runs and drawn towards that of the others, the less the less "
        "alike they are. Better and worse are two-sided t-tests (Welch's) of the held-out loss after the last step"
        f"{over}. With probability 95 %{but_tuning}, for noise that is close to normal, all verdicts of this question "
        "together are right: p-values are corrected (Holm's method) for every arm ever judged for it, and intervals "
        "agree with them.",
    ]
    if summary.study.margin is not None:
        parts.append(
            f"No difference means smaller than {summary.study.margin:g} nats: two one-sided t-tests against that "
            "margin, corrected likewise at another 5 %."
        )
    return parts


ORDINALS = ("First", "Second", "Third", "Fourth", "Fifth")


def look(summary: StudySummary, *, again: bool = False) -> str:
    """The cost of this judgement: `First look at this question: its tests use 4 % out of …`.

    again: whether it included other arms, which the study no longer has.
    """
    judged = [each.comparison for each in summary.judgements if not each.comparison.repeated]
    if not any(found.test is not None and found.test.p is not None for found in judged):
        return ""
    number = looks_at(summary.tests, summary.ledger, summary.elsewhere)
    spent, later = (f"{100 * ALPHA * share(each):.2g} %" for each in (number, number + 1))
    nth = ORDINALS[number - 1] if number <= len(ORDINALS) else f"{number}th"
    what = (
        f"These tests belong to the {nth.lower()} look at this question, and use"
        if again
        else (f"{nth} look at this question: its tests use")
    )
    return (
        f"{what} {spent} out of the question's total 5 % risk of a false verdict; "
        f"the next look, at other arms or seeds, would have {later}."
    )


def _first_judged(summary: StudySummary, ledger: Sequence[LedgerRecord]) -> str:
    """Sentence on p-values that stand from an earlier judgement, made beside other arms; empty if there are none."""
    first: dict[object, float] = {}
    for test in (test for record in ledger for test in record.tests):
        if test.p is not None:
            first.setdefault(_key(test), test.p)
    known = [(test.arm, test.p, first.get(_key(test))) for test in summary.tests]
    arms = [arm for arm, p, before in known if p is not None and before is not None and not math.isclose(p, before)]
    if not arms:
        return ""
    return f"The p-value of {listed(arms)} is that of the first judgement, made with the noise estimate of that time."


def _key(test: LedgerTest) -> object:
    return test.arm_identity, test.baseline_identity, test.seeds


TERMS = {
    "arm": "A model with its training settings. The baseline is the arm that the others are compared with.",
    "seed": "A number that sets initial weights and the order of the data. Arms share seeds, so that differences are "
    "paired.",
    "nats": "Unit of the loss, the mean of −ln p over tokens: at 0.01 less, tokens are 1 % likelier (geometric mean).",
    "better, worse": "The difference is significant at a level of 5 % for everything that is judged together.",
    "no difference": "The difference is smaller than the margin that the study states.",
    "inconclusive": "Neither is shown. The detectable difference is the smallest that four of five such studies would "
    "find.",
    "stalled": "The run learned little more than token frequencies and no longer improves; diverged is worse than "
    "guessing.",
    "undertrained": f"Trained for fewer than {LIMITS}: the loss says little about longer training.",
    "tuned, carried, written": "Origin of learning rates: tuned for each arm in this study; carried over from earlier "
    "tuning; written in the study and not tuned.",
    "parameters": "Those of the layers: without embeddings, and without the head, tied to them or not. Total "
    "parameters include both.",
    "pilot": "A study that only estimates and gives no verdicts. It spends none of the 5 % error rate.",
    "look": "One judgement of a question. Each look spends a part of the question’s 5 % error rate, whatever it finds.",
    "rung": "One size or training length of a study’s ladder; all rungs ask the same question.",
    "matched": "Equal in every arm: FLOPs, tokens, parameters or seconds.",
    "signal to noise": "Of a score: the range of the arms, divided by the standard error of one arm. Below about 2 the "
    "task cannot tell these arms apart.",
    "KV cache": "Memory that a model keeps for each sequence while it generates.",
}
