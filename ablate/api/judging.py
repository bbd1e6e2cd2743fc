"""`ablate.judge`: a proposal to change a base, trained beside it on fresh seeds, and kept, discarded or left open."""

from __future__ import annotations

import hashlib
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Unpack, cast

import polars as pl
from filelock import FileLock, Timeout
from pydantic import JsonValue
from scipy import special

import reports
from ablate.api.planning import plan
from ablate.api.questions import StudyLike, read
from ablate.api.running import run
from ablate.errors import ArgumentError
from ablate.machine.environment import PROJECT
from ablate.noise.power import POWER
from ablate.readable import clock
from ablate.running.context import RunContext, open_context
from ablate.running.options import PlanOptions, RunOptions, documented
from ablate.running.progress import Wanted
from ablate.store import Store, write_text
from ablate.store.documents import JsonObject, ProposalOutcome, ProposalRecord, ProposalTest, StudyDocument
from ablate.store.paths import campaign_study
from ablate.study.proposing import CHANGE, Edits, changes, proposal, refuse_unfair
from ablate.study.study import Study
from ablate.study.written import Sets
from reports.findings.proposals import (
    FALSE_DISCOVERIES,
    LEAST_SEEDS,
    MOST_SEEDS,
    WORTH,
    confirm,
    is_hopeless,
    kept,
    latest,
    p_values,
    ratios,
    rule,
    tested,
)
from zoo.errors import did_you_mean

FIRST_SEED, SEEDS_EACH = 10_000, 100
"""Seeds of the first proposal, far from those of studies and searches, and how many are set aside for each."""
BUDGET = 20 * 60.0


@dataclass(frozen=True)
class Judgement:
    """The decision on a proposal.

    Attributes:
        campaign: the campaign's name.
        record: the proposal with its outcome, as it is stored.
        proposals, kept: how many were decided in the campaign so far, and how many of them were kept.
        alpha: the share of kept changes that may be none, in expectation.
        page: the campaign's page.
        next: a command that would probably settle it, and its seconds; None where it is settled, or nothing would.
    """

    campaign: str
    record: ProposalRecord
    outcome: ProposalOutcome
    proposals: int
    kept: int
    alpha: float
    page: Path
    next: tuple[str, float] | None

    @property
    def decision(self) -> str:
        """`keep`, `discard` or `undecided`."""
        return self.outcome.decision

    def document(self) -> JsonObject:
        """The document that `ablate judge --json` prints."""
        test, confirmed = self.outcome.test, self.outcome.confirmed
        return {
            "decision": self.outcome.decision,
            "reason": self.outcome.reason,
            "difference": test.difference,
            "low": test.low,
            "high": test.high,
            "p": test.p,
            "seeds": len(test.seeds),
            "scale": test.scale,
            "confirmed": None if confirmed is None else confirmed.model_dump(mode="json"),
            "cost": self.outcome.costs,
            "false_discovery": {
                "rule": "SAFFRON",
                "alpha": self.alpha,
                "level": self.outcome.level,
                "proposals": self.proposals,
                "kept": self.kept,
            },
            "spent_seconds": self.outcome.spent_seconds,
            "campaign": self.campaign,
            "number": self.record.number,
            "name": self.record.name,
            "page": str(self.page),
            "next": [] if self.next is None else [{"command": self.next[0], "seconds": self.next[1]}],
        }

    def __str__(self) -> str:
        test = self.outcome.test
        gap = "" if test.difference is None else f" {test.difference:+.4f} nats ({_ends(test)})".replace("-", "−")
        return f"{self.outcome.decision}: {self.record.name}{gap}: {self.outcome.reason}"


@documented(RunOptions.__annotations__)
def judge(
    base: StudyLike,
    *,
    change: Mapping[str, JsonValue] | Sequence[str] = (),
    arm: str | None = None,
    name: str | None = None,
    budget: float = BUDGET,
    replicate: str | None = None,
    scale: str | None = None,
    sets: Sets = (),
    campaign: str | None = None,
    alpha: float = FALSE_DISCOVERIES,
    store: str | Path = "runs",
    progress: Wanted = True,
    **options: Unpack[RunOptions],
) -> Judgement:
    """Judge a proposal to change the base of a study: train both on fresh seeds, and say whether to keep it.

    All proposals for one base are a campaign. Of the changes that it keeps at most `alpha` are expected to be none,
    however many are proposed. What is kept becomes part of the base for the next proposal. After an interruption the
    same call resumes.

    Args:
        base: a study, as in `ablate.run`: its base model, data, training and budget; its arms are not trained.
        change: edits of the base by dotted path: `{"block.ffn.activation": "relu2"}`, or a list of `path=value`.
        arm: the edits of this arm of the study instead.
        name: what the proposal is called (default: its edits).
        budget: seconds that its runs may take, tuning included, estimated beforehand and counted afterwards.
        replicate: a second scale of the study, at which a change must hold too before it is kept.
        scale, sets, store, progress: as in `ablate.run`.
        campaign: the campaign's name (default: the study's name and scale).
        alpha: the share of kept changes that may be none, in expectation.
        options: see `ablate.running.options`.

    Returns:
        The decision, with difference, interval, costs and the next command.

    Raises:
        StudyError: the base or the change cannot be read or built.
        ArgumentError: the change touches data, seeds or evaluation, or the budget is too small for three seeds.

    Example:
        >>> ablate.judge("norm_placement", change={"block.ffn.activation": "relu2"}, budget=600).decision
    """
    context = open_context(store, options, progress)
    study = read(base, scale, sets, context.device)
    edits = _edits(study, change, arm)
    refuse_unfair(edits)
    named = campaign or f"{study.name}-{study.scale}"
    path = context.store.campaign_path(named)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path.with_suffix(".lock"), timeout=0):
            case = _Case(study, context, named, edits, name or _called(edits), budget, replicate, alpha)
            return case.judged(progress, options)
    except Timeout as error:
        reason = "another command judges a proposal of it: proposals are judged one after the other"
        raise ArgumentError("campaign", reason, named) from error


def _edits(study: Study, change: Mapping[str, JsonValue] | Sequence[str], arm: str | None) -> Edits:
    if arm is None:
        return dict(change) if isinstance(change, Mapping) else changes(change)
    if change:
        raise ArgumentError("arm", "is instead of a change: give one of the two", arm)
    found = {each.name: each for each in study.arms[1:]}
    if arm not in found:
        raise ArgumentError("arm", f"no arm of that name{did_you_mean(arm, found)}; arms: {', '.join(found)}", arm)
    return dict(found[arm].edits)


def _called(edits: Mapping[str, object]) -> str:
    return ", ".join(f"{path}={value}" for path, value in edits.items())


@dataclass(frozen=True)
class _Case:
    """One proposal, on its way to a decision."""

    study: Study
    context: RunContext
    campaign: str
    edits: Edits
    name: str
    budget: float
    replicate: str | None
    alpha: float

    @property
    def store(self) -> Store:
        return self.context.store

    def judged(self, progress: Wanted, options: RunOptions) -> Judgement:
        log = self.store.campaign(self.campaign)
        past = latest(self.store.read_campaign(self.campaign))
        if past and past[0].alpha != self.alpha:
            reason = f"the campaign {self.campaign} began with {past[0].alpha:g}: begin another with its own name"
            raise ArgumentError("alpha", reason, self.alpha)
        decided = [record for record in past if record.outcome is not None]
        record = self._resumed(past) or self._begun(past, decided)
        if all(record.number != each.number for each in past):
            log.append([record])
        looks = _Looks(self, record, decided, progress, options)
        outcome = looks.outcome()
        record = record.model_copy(update={"outcome": outcome, "at": _now()})
        log.append([record])
        page = reports.render_campaign(self.store, self.campaign)
        everything = latest(self.store.read_campaign(self.campaign))
        return Judgement(
            campaign=self.campaign,
            record=record,
            outcome=outcome,
            proposals=sum(each.outcome is not None for each in everything),
            kept=len(kept(everything)),
            alpha=self.alpha,
            page=page,
            next=self._next(outcome, looks),
        )

    def _resumed(self, past: Sequence[ProposalRecord]) -> ProposalRecord | None:
        """The same proposal, where it was begun and nothing was decided."""
        asked = (self.edits, self.study.scale)
        return next((each for each in past if each.outcome is None and (each.edits, each.scale) == asked), None)

    def _begun(self, past: Sequence[ProposalRecord], decided: Sequence[ProposalRecord]) -> ProposalRecord:
        number = 1 + max((each.number for each in past), default=0)
        asked = proposal(self.study, "base", self.edits, [each.edits for each in kept(decided)], [FIRST_SEED])
        base = hashlib.sha256("\n".join(asked.arms[0].identity).encode()).hexdigest()[:20]
        return ProposalRecord(
            at=_now(),
            number=number,
            name=self.name,
            scale=self.study.scale,
            edits=self.edits,
            alpha=self.alpha,
            base=base,
        )

    def _next(self, outcome: ProposalOutcome, looks: _Looks) -> tuple[str, float] | None:
        """The command whose budget has room for the fresh seeds that find such a difference with 80 % probability at
        that level; None where a proposal may not have so many."""
        test = outcome.test
        if outcome.decision != "undecided" or test.p is None or not 0 < test.p < 0.5:
            return None
        seen, wanted = -special.ndtri(test.p), special.ndtri(POWER) - special.ndtri(outcome.level)
        seeds = math.ceil(len(test.seeds) * (wanted / seen) ** 2)
        if seeds > MOST_SEEDS:
            return None
        seconds = looks.seconds_each * seeds * (2 if self.replicate else 1)
        changed = [f"--change={path}={json.dumps(value)}" for path, value in self.edits.items()]
        edited = [f"--set={path}={json.dumps(value)}" for path, value in self.study.written.edits.items()]
        places = {"--store": self.store.root, "--campaign": self.campaign, "--replicate": self.replicate}
        options = [word for name, value in places.items() if value is not None for word in (name, str(value))]
        words = ["ablate", "judge", self.study.written.place, "--scale", self.study.scale, *changed, *edited, *options]
        return shlex.join([*words, "--budget", f"{math.ceil(seconds / 60)}m"]), seconds


class _Looks:
    """Training of a proposal and its base: a first look, then as many seeds as the budget has room for."""

    def __init__(
        self,
        case: _Case,
        record: ProposalRecord,
        decided: Sequence[ProposalRecord],
        progress: Wanted,
        options: RunOptions,
    ) -> None:
        self.case, self.record, self.decided = case, record, decided
        self.progress, self.options = progress, options
        self.seconds_each = 0.0
        """Time of one more seed: a run of each arm."""
        self.runs: set[str] = set()
        self.spent = 0.0

    def outcome(self) -> ProposalOutcome:
        case = self.case
        share = case.budget / 2 if case.replicate else case.budget
        test, is_first, document = self._test(case.study.scale, share)
        worth = case.study.sections.margin or WORTH
        ruling = rule(test, p_values(self.decided), worth, case.alpha, first=is_first)
        second = None
        if ruling.decision == "keep" and case.replicate:
            second, _, _ = self._test(case.replicate, case.budget - self.spent)
            ruling = confirm(ruling, second)
        return ProposalOutcome(
            decision=ruling.decision,
            reason=ruling.reason,
            test=test,
            level=ruling.level,
            confirmed=second,
            costs=ratios(document.arm(CHANGE), document.baseline_arm),
            spent_seconds=self.spent,
        )

    def _test(self, scale: str, budget: float) -> tuple[ProposalTest, bool, StudyDocument]:
        """The test, whether it ended at the first look, and the study that was trained."""
        self._refuse_small(scale, budget)
        spent = self.spent
        test, document = self._look(scale, LEAST_SEEDS)
        if is_hopeless(test):
            return test, True, document
        left = budget - (self.spent - spent)
        more = min(MOST_SEEDS - LEAST_SEEDS, math.floor(left / max(self.seconds_each, 1e-3)))
        if more > 0:
            test, document = self._look(scale, LEAST_SEEDS + more)
        return test, False, document

    def _study(self, scale: str, count: int) -> Study:
        first = FIRST_SEED + SEEDS_EACH * self.record.number
        before = [each.edits for each in kept(self.decided)]
        name = campaign_study(self.case.campaign, self.record.number)
        return proposal(self.case.study, name, self.case.edits, before, range(first, first + count), scale)

    def _refuse_small(self, scale: str, budget: float) -> None:
        """Raises ArgumentError where not even a first look fits the budget."""
        study = self._study(scale, LEAST_SEEDS)
        found = plan(study, store=self.case.store.root, progress=False, **_plan_options(self.options)).time
        needed = found.tuning + found.training
        if needed > budget:
            reason = f"{LEAST_SEEDS} seeds of both at {scale} take about {clock(needed)}, tuning included"
            raise ArgumentError("budget", reason, clock(budget))

    def _look(self, scale: str, count: int) -> tuple[ProposalTest, StudyDocument]:
        study = self._study(scale, count)
        result = run(study, store=self.case.store.root, progress=self.progress, **self.options)
        summary = result.summary
        if summary is None:
            reason = "; ".join(str(each) for each in result.failed) or "its runs could not be tuned"
            raise ArgumentError("change", f"could not be trained: {reason}", self.case.name)
        own = summary.runs.group_by("arm").agg(pl.col("wall_seconds").mean())
        self.seconds_each = float(own["wall_seconds"].sum()) / result.at_once
        self.runs |= set(summary.runs["digest"])
        passes = [each for tuning in summary.study.tuning for each in (tuning, *tuning.coarse)]
        self.runs |= {digest for each in passes for trial in each.trials for digest in trial.runs}
        self.spent = self._wall_seconds() / result.at_once
        return tested(summary, CHANGE), summary.study

    def _wall_seconds(self) -> float:
        """Wall time of the runs that began since the proposal did; the base's tuning was before."""
        began = datetime.fromisoformat(self.record.at)
        found = [self.case.store.read_result(digest) for digest in self.runs]
        return sum(each.wall_seconds for each in found if each and datetime.fromisoformat(each.started) >= began)


def _plan_options(options: RunOptions) -> PlanOptions:
    return cast(PlanOptions, {name: options[name] for name in options if name in PlanOptions.__annotations__})  # type: ignore[literal-required]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _ends(test: ProposalTest) -> str:
    if test.low is None and test.high is None:
        return "no interval"
    low, high = ("∞" if end is None else f"{end:+.4f}" for end in (test.low, test.high))
    return f"{low} to {high}"


def write_instructions(study: str, scale: str | None, path: Path = Path("AGENTS.md")) -> Path:
    """Write what a program must know to propose changes to this study. Raises ArgumentError where the file is there."""
    if path.exists():
        raise ArgumentError("init", "is there already: add what `docs/agents.md` says, or remove it", str(path))
    text = (PROJECT / "ablate" / "study" / "agents.md").read_text(encoding="utf-8")
    return write_text(path, text.format(study=study, scale="" if scale is None else f" --scale {scale}"))
