"""Arms in words: their names and settings, seeds that failed, and where losses stand among simple models.

Seeds that stalled or diverged are named in every place where a mean leaves them out. A difference between two models
that are worse than a bigram table says little about models that have learned which token follows which. No sentence
states such a difference without saying so: `qualified` sees to headlines, `pair_note` to rows of tables.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import fmean

from reports.judge.findings.comparison import Comparison
from reports.judge.findings.study_summary import ArmSummary, StudySummary
from reports.judge.sentences import listed, prefixed
from reports.judge.statistics.estimates import failure_rate_bound
from reports.page.wording import words
from reports.page.wording.training_words import undertrained
from store.documents import References, StudyEffect

SETTING = " · "
"""Between an arm's name and the settings of a grid's cell."""


def spelled(arm: str) -> str:
    """A grid cell's name with its settings, without their paths: `base · kv heads 2 · window 32`."""
    return _joined(_parts(arm))


def brief(arms: Sequence[str]) -> dict[str, str]:
    """`spelled` for each arm. If all names begin with the same arm, only their settings remain."""
    parts = {arm: _parts(arm) for arm in arms}
    is_grid_of_one = len(arms) > 1 and len({first for first, *_ in parts.values()}) == 1
    return {arm: _joined(found[1:] if is_grid_of_one and len(found) > 1 else found) for arm, found in parts.items()}


def without_shared(one: str, other: str) -> tuple[str, str, str]:
    """Two cells' names without the settings that they share, and those: `a · lr 0.1`, `b · lr 0.1` → a, b, lr 0.1."""
    of_one, of_other = one.split(SETTING), other.split(SETTING)
    shared = [part for part in of_one[1:] if part in of_other[1:]]
    left, right = (SETTING.join(part for part in parts if part not in shared) for parts in (of_one, of_other))
    return left, right, " and ".join(shared)


def setting_name(path: str) -> str:
    """`block.mixer.kv_heads` → `kv heads`; a symbol such as `d_model` stays."""
    tail = path.rpartition(".")[2]
    return tail if tail[1:2] == "_" else tail.replace("_", " ")


def _parts(arm: str) -> list[tuple[str, str]]:
    """(name, "") of the arm, then (path, value) of each setting."""
    return [(path, value) for path, _, value in (part.partition("=") for part in arm.split("+"))]


def _joined(parts: Sequence[tuple[str, str]]) -> str:
    return SETTING.join(f"{setting_name(path)} {value}" if value else path for path, value in parts)


SHOWN = 8
"""Most seeds that a sentence lists."""


def listed_seeds(seeds: Sequence[Hashable]) -> str:
    """Seeds as words: `seeds 3, 4 and 90 more`."""
    shown = ", ".join(map(str, seeds[:SHOWN]))
    more = f" and {len(seeds) - SHOWN:,} more" if len(seeds) > SHOWN else ""
    return f"seed{'s' if len(seeds) > 1 else ''} {shown}{more}"


MOST_NAMED = 8


def grouped(warnings: Iterable[str]) -> tuple[str, ...]:
    """`pre: a seed diverged.` and `post: a seed diverged.` as `pre and post: a seed diverged.`, in order."""
    arms: dict[str, list[str]] = {}
    for warning in warnings:
        arm, colon, said = warning.partition(": ")
        arms.setdefault(said if colon else warning, []).extend([arm] if colon else [])
    found = []
    for said, names in arms.items():
        if len(names) > MOST_NAMED:
            who = f"{listed(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} others: "
        else:
            who = f"{listed(names)}: " if names else ""
        found.append(who + said)
    return tuple(found)


BLOCK = "block."
"""Prefix of most paths, omitted from descriptions."""
LONGEST = 90

Edits = Iterable[tuple[str, str]]


def of_arm(summary: StudySummary, arm: ArmSummary) -> str:
    """`norm_placement=post`: the arm's edits that the baseline lacks; for the baseline itself, all its edits."""
    base = summary.baseline_arm
    shared = set() if arm is base else set(base.edits)
    return _said(edit for edit in arm.edits if edit not in shared)


def of_effect(summary: StudySummary, effect: StudyEffect) -> str:
    """Edits shared by all runs with a factor and by no other run; empty for an interaction, which is no edit."""
    edits = {arm.name: dict(arm.edits) for arm in summary.arms}
    having = [edits[name].items() for name in effect.arms]
    others = {edit for name, found in edits.items() if name not in effect.arms for edit in found.items()}
    return _said(edit for edit in having[0] if all(edit in each for each in having) and edit not in others)


def _said(edits: Edits) -> str:
    return ", ".join(f"{path.removeprefix(BLOCK)}={value_of(json.loads(value))}" for path, value in edits)


def value_of(value: object) -> str:
    """`gelu(d_ff=4x)`, `[q, k, v]`, `0.024`."""
    if isinstance(value, Mapping):
        rest = ", ".join(f"{name}={value_of(each)}" for name, each in value.items() if name != "kind")
        return f"{value.get('kind', '')}({rest})" if value else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(value_of, value))}]"
    return value if isinstance(value, str) else json.dumps(value)


def short(gloss: str) -> str:
    """A description, shortened to at most `LONGEST` characters."""
    return gloss if len(gloss) <= LONGEST else f"{gloss[: LONGEST - 1].rstrip(' ,')}…"


def failed(arm: ArmSummary) -> str:
    """`1 of 3 seeds stalled`, `1 stalled and 1 diverged of 3 seeds`; empty if none failed."""
    counts = ((len(arm.stalled), "stalled"), (len(arm.diverged), "diverged"))
    said = [(number, how) for number, how in counts if number]
    total = len(arm.seeds) + arm.failed
    if not said:
        return ""
    if len(said) == 2:
        return f"{' and '.join(f'{number} {how}' for number, how in said)} of {total} seeds"
    number, how = said[0]
    if number < total:
        return f"{number} of {total} seeds {how}"
    return f"all {total} seeds {how}" if total > 1 else f"its only seed {how}"


def failing(summary: StudySummary) -> str:
    """`post: 1 of 3 seeds stalled`, for every arm with both failed and finished seeds."""
    return "; ".join(f"{arm.name}: {failed(arm)}" for arm in summary.arms if arm.failed and arm.seeds)


def left_out(summary: StudySummary) -> str:
    """Addition to an answer: failed seeds, which no mean can include, and outliers, which all do."""
    found = failing(summary)
    out = f" Means leave out failed seeds ({found}); such an arm is never better." if found else ""
    base = summary.baseline_arm
    for arm, odd in ((arm, arm.outlier) for arm in summary.arms):
        if odd is None:
            continue
        ended = f"{abs(odd.above):.2g} nats {odd.side} its other seeds"
        out += f" Seed {odd.seed} of {arm.name} ended {ended}, and counts like them"
        if arm is not base and arm.loss and base.loss:
            others = fmean(loss for seed, loss in zip(arm.seeds, arm.loss.values, strict=True) if seed != odd.seed)
            difference = others - base.loss.mean
            out += f"; without it the difference is {words.signed(difference, words.decimals(difference))}"
        out += "."
    return out


def mark(summary: StudySummary) -> str:
    """Suffix of the title of a figure of losses: ` (undertrained; post: 1 of 3 seeds stalled)`."""
    notes = ["undertrained" if undertrained(summary.study) else "", failing(summary)]
    said = "; ".join(filter(None, notes))
    return f" ({said})" if said else ""


def where_it_trains(comparison: Comparison) -> str:
    """`where it trains`; empty if no seed failed."""
    return "where it trains" if comparison.failures.any else ""


def because(summary: StudySummary, arm: ArmSummary) -> str:
    """`1 of 3 seeds of post stalled`: for the arm, or for the baseline if the arm has no failed seed."""
    shaky = arm if arm.failed else summary.baseline_arm
    return failed(shaky).replace(" seeds", f" seeds of {shaky.name}")


def reliability(summary: StudySummary) -> str:
    """Bound on the failure rate if no seed failed."""
    fewest = min((len(arm.seeds) for arm in summary.arms if arm.seeds and not arm.failed), default=0)
    if not fewest:
        return ""
    bound = failure_rate_bound(fewest)
    rates = f"{words.seed_count(fewest)} without a failure cannot rule out a failure rate below {100 * bound:.0f} %"
    return f"Verdicts apply to runs that train: {rates}."


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
