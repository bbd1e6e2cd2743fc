"""Where losses stand among simple models of the same text, in words.

A difference between two models that are worse than a bigram table says little about models that have learned which
token follows which. No sentence states such a difference without saying so: `qualified` sees to headlines, `pair_note`
to rows of tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reports.judge.findings.study_summary import StudySummary
from reports.judge.sentences import prefixed
from store.documents import References

AMONG = "Among models worse than a bigram table: "
"""Opening of a headline if even the best arm is worse than the bigrams of the text that it read."""
PAIR = "both worse than bigrams"

Losses = Mapping[str, float]
"""Mean loss of each arm that trained."""


def qualified(answer: str, losses: Losses, references: Mapping[str, References], baseline: str) -> str:
    """The answer, with what it must not be read without. Differences are from the baseline, so none is between two
    models below the bigrams if the baseline is above them."""
    below = {name for name, loss in losses.items() if name in references and references[name].is_below_bigrams(loss)}
    if below and min(losses, key=losses.__getitem__) in below:
        return answer if answer.startswith(AMONG) else f"{AMONG}{answer}"
    clause = f"; {baseline} is worse than a bigram table"
    if baseline in below and clause not in answer:
        return f"{answer.removesuffix('.')}{clause}."
    return answer


def pair_note(names: Iterable[str], losses: Losses, references: Mapping[str, References]) -> str:
    """`both worse than bigrams`, if a difference between these arms compares only such models; else empty."""
    told = list(names)
    known = told and all(name in losses and name in references for name in told)
    return PAIR if known and all(references[name].is_below_bigrams(losses[name]) for name in told) else ""


def losses_of(summary: StudySummary) -> dict[str, float]:
    """Mean loss of each arm that trained."""
    return {arm.name: arm.loss.mean for arm in summary.arms if arm.loss is not None}


def read_by(summary: StudySummary) -> dict[str, References]:
    """References of each arm, of as many tokens as its runs read."""
    return {name: each.read for name, each in summary.references.items()}


def standing(summary: StudySummary, arm: str) -> str:
    """`between bigrams and trigrams`, of the text that the arm's runs read; empty if unknown."""
    loss, known = losses_of(summary).get(arm), summary.references.get(arm)
    return "" if loss is None or known is None else known.read.standing(loss)


def baseline_line(summary: StudySummary) -> str:
    """`pre (4.549) is worse than bigrams: counted over the 420 k tokens that a run reads, unigrams reach 5.977, …`;
    empty if unknown."""
    known, loss = summary.references.get(summary.baseline), losses_of(summary).get(summary.baseline)
    if known is None or loss is None:
        return ""
    read, whole = known.read, known.whole
    every = "" if read.tokens == whole.tokens else f"; over all {prefixed(whole.tokens)}, bigrams {whole.bigram:.3f}"
    every += f" and 5-grams {whole.kn5:.3f}" if every else ""
    return (
        f"{summary.baseline} ({loss:.3f}) is {read.standing(loss)}: counted over the {prefixed(read.tokens)} tokens "
        f"that a run reads, unigrams reach {read.unigram:.3f}, bigrams {read.bigram:.3f}, trigrams {read.kn3:.3f} and "
        f"5-grams {read.kn5:.3f} nats per {summary.study.per}{every}; gzip {read.gzip:.3f} "
        f"({read.bits_per_byte['gzip']:.2f} bits per byte)."
    )
