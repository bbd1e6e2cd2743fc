"""`ablate.judge`: train a proposed change beside its base on fresh seeds; keep it, discard it or leave it undecided."""

from __future__ import annotations

import json
import math
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from pydantic import JsonValue
from scipy import special

from ablate.api.study_argument import StudyLike
from ablate.machine.environment import PROJECT
from ablate.readable import now
from ablate.running.context import open_context
from ablate.running.options import RunOptions, documented
from ablate.running.progress import Wanted
from ablate.study.reading import load_study
from ablate.study.scales import NAMING
from ablate.study.study import Study
from ablate.study.written import Sets
from ablate.wings.campaign import campaign_log
from ablate.wings.campaign.campaign_log import ProposalOutcome, ProposalRecord, ProposalTest
from ablate.wings.campaign.campaign_page import render_campaign
from ablate.wings.campaign.proposals import FALSE_DISCOVERIES, MOST_SEEDS, Case, Looks, kept, latest
from ablate.wings.promoting import Edits, changes, refuse_unfair
from reports.judge.noise.power import POWER
from store import write_text
from store.documents import JsonObject
from store.documents.shell import plugin_options
from store.errors import ArgumentError
from store.files import held
from store.paths import NAME
from zoo.errors import did_you_mean
from zoo.settings.registry import plugin_files

BUDGET = 20 * 60.0


@dataclass(frozen=True)
class Judgement:
    """The decision on a proposal.

    Attributes:
        campaign: the campaign's name.
        record: the proposal with its outcome, as it is stored.
        proposals, kept: the number of proposals decided in the campaign so far, and of those kept.
        alpha: bound on the expected share of kept changes that are no improvement (false-discovery rate).
        page: the campaign's page.
        next: a command that would probably settle the proposal, and its seconds; None if it is settled or none would.
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
    change: Mapping[str, JsonValue] | Sequence[str] | str = (),
    arm: str | None = None,
    name: str | None = None,
    budget: float = BUDGET,
    replicate: str | None = None,
    scale: str | None = None,
    sets: Sets = (),
    campaign: str | None = None,
    total_budget: float | None = None,
    alpha: float = FALSE_DISCOVERIES,
    store: str | Path = "runs",
    progress: Wanted = True,
    **options: Unpack[RunOptions],
) -> Judgement:
    """Judge a proposal to change the base of a study: train both on fresh seeds, and say whether to keep it.

    All proposals for one base form a campaign. At most a share `alpha` of its kept changes is expected to be no
    improvement, however many are proposed. A kept change becomes part of the base for later proposals. After an
    interruption, the same call resumes.

    Args:
        base: a study, as in `ablate.run`: its base model, data, training and budget. It needs no arms; they are not
            trained.
        change: edits of the base by dotted path: `{"block.ffn.activation": "relu2"}`, or one `path=value`, or a list of
            these.
        arm: an arm of the study whose edits are the change, instead of `change`.
        name: the proposal's name (default: its edits).
        budget: seconds that its runs may take, tuning included, estimated beforehand and counted afterwards.
        replicate: a second scale of the study, at which a change must hold too before it is kept.
        scale, sets, store, progress: as in `ablate.run`.
        campaign: the campaign's name (default: the study's name and scale).
        total_budget: seconds that all proposals judged with such a budget may take together, in every campaign of the
            store, interrupted ones included (default: no limit).
        alpha: bound on the expected share of kept changes that are no improvement (false-discovery rate).
        options: see `ablate.running.options`.

    Returns:
        The decision, with difference, interval, costs and the next command.

    Raises:
        StudyError: the base or the change cannot be read or built.
        ArgumentError: the change touches data, seeds or evaluation, the budget is too small for three seeds, or the
            campaign began with another base.

    Example:
        >>> ablate.judge("norm_placement", change={"block.ffn.activation": "relu2"}, budget=600).decision
    """
    if not budget >= 0:
        raise ArgumentError("budget", f"expected a number of seconds, not {budget:g}")
    if not 0 < alpha < 1:
        raise ArgumentError("alpha", f"expected a number between 0 and 1, not {alpha:g}")
    context = open_context(store, options, progress)
    study = load_study(base, scale, sets, device=context.device, needs_arms=False)
    edits = _edits(study, change, arm)
    refuse_unfair(edits)
    usual = f"{study.name}-{study.scale}"
    named = campaign or usual
    if named != usual and not NAME.fullmatch(named):
        raise ArgumentError("campaign", NAMING, named)
    name = name or ", ".join(f"{path}={value}" for path, value in edits.items())
    case = Case(study, context, named, edits, name, budget, total_budget, replicate, alpha)
    _refuse_spent(case)
    # What is refused here leaves neither a lock nor a line of the campaign.
    Looks(case, *_proposed(case), progress, options).check_room()
    try:
        with held(campaign_log.log_path(case.store, named).with_suffix(".lock"), blocking=False):
            return _judged(case, progress, options)
    except BlockingIOError as error:
        reason = "another command is judging a proposal of this campaign; wait for it to finish"
        raise ArgumentError("campaign", reason, named) from error


def _edits(study: Study, change: Mapping[str, JsonValue] | Sequence[str] | str, arm: str | None) -> Edits:
    if isinstance(change, str):
        change = [change]
    if arm is None:
        return dict(change) if isinstance(change, Mapping) else changes(change)
    if change:
        raise ArgumentError("arm", "cannot be combined with a change", arm)
    found = {each.name: each for each in study.arms[1:]}
    if arm not in found:
        raise ArgumentError(
            "arm", f"no arm of that name{did_you_mean(arm, found)}; arms: {', '.join(found) or 'none'}", arm
        )
    return dict(found[arm].edits)


def _proposed(case: Case) -> tuple[ProposalRecord, list[ProposalRecord]]:
    """The proposal, as it was begun if it has no outcome yet, and those decided before it. Raises ArgumentError for
    another alpha or base than the campaign's, and for a change that the base has already."""
    past = latest(campaign_log.read(case.store, case.campaign))
    if past and past[0].alpha != case.alpha:
        reason = f"the campaign {case.campaign} began with {past[0].alpha:g}: keep that, or name a new campaign"
        raise ArgumentError("alpha", reason, case.alpha)
    first = min((each for each in past if each.scale == case.study.scale), key=lambda each: each.number, default=None)
    if first is not None and first.base != case.base:
        reason = "began with another model, training or data: judge on that base, or name a new campaign"
        raise ArgumentError("campaign", reason, case.campaign)
    decided = [record for record in past if record.outcome is not None]
    asked = (case.edits, case.study.scale)
    for each in past:
        if each.outcome is None and (each.edits, each.scale) == asked:
            return each, decided
    last = {path: (value, each.number) for each in kept(decided) for path, value in each.edits.items()}
    same = {last[path][1] for path, value in case.edits.items() if path in last and last[path][0] == value}
    if all(path in last and last[path][0] == value for path, value in case.edits.items()):
        numbers = " and ".join(f"no. {number}" for number in sorted(same))
        raise ArgumentError("change", f"already in the base, kept as {numbers} of {case.campaign}", case.name)
    return _begun(case, past), decided


def _judged(case: Case, progress: Wanted, options: RunOptions) -> Judgement:
    log = campaign_log.log_of(case.store, case.campaign)
    record, decided = _proposed(case)  # other proposals may have been decided meanwhile
    began = time.monotonic()
    if case.total_budget is not None:
        record = _charged(case, record)
    elif record not in log.records():
        log.append([record])
    looks = Looks(case, record, decided, progress, options)
    try:
        outcome = looks.outcome()
    except BaseException:
        if case.total_budget is not None:
            log.append([_settled(case, record, began)])
        raise
    record = record if case.total_budget is None else _settled(case, record, began)
    record = record.model_copy(update={"outcome": outcome, "at": now()})
    log.append([record])
    page = render_campaign(case.store, case.campaign)
    everything = latest(campaign_log.read(case.store, case.campaign))
    return Judgement(
        campaign=case.campaign,
        record=record,
        outcome=outcome,
        proposals=sum(each.outcome is not None for each in everything),
        kept=len(kept(everything)),
        alpha=case.alpha,
        page=page,
        next=_next(case, outcome, looks),
    )


def _charged(case: Case, record: ProposalRecord) -> ProposalRecord:
    """The record of a proposal that begins, charged with its whole budget: if it is killed, it counts so. Raises
    ArgumentError if that is more than is left of what all such proposals of the store may take."""
    with held(campaign_log.total_lock(case.store)):  # proposals of other campaigns may begin at once
        _refuse_spent(case)
        record = record.model_copy(update={"charged": (record.charged or 0.0) + case.budget})
        campaign_log.log_of(case.store, case.campaign).append([record])
    return record


def _refuse_spent(case: Case) -> None:
    """Raise ArgumentError if the budget is more than is left of what all proposals of the store may take."""
    if case.budget > (left := _left(case)):
        reason = f"all proposals may take {case.total_budget:g} s, of which {max(left, 0):.0f} s are left"
        raise ArgumentError("budget", reason, f"{case.budget:g} s")


def _left(case: Case) -> float:
    """Seconds left of what all proposals of the store may take."""
    if case.total_budget is None:
        return math.inf
    every = (latest(campaign_log.log_of(case.store, name).records()) for name in campaign_log.campaigns(case.store))
    return case.total_budget - sum(each.charged or 0.0 for records in every for each in records)


def _settled(case: Case, record: ProposalRecord, began: float) -> ProposalRecord:
    """The record, charged with the time that it took since `began` instead of its budget."""
    assert record.charged is not None  # by `_charged`
    return record.model_copy(update={"charged": record.charged - case.budget + time.monotonic() - began})


def _begun(case: Case, past: Sequence[ProposalRecord]) -> ProposalRecord:
    return ProposalRecord(
        at=now(),
        number=1 + max((each.number for each in past), default=0),
        name=case.name,
        scale=case.study.scale,
        edits=case.edits,
        alpha=case.alpha,
        base=case.base,
    )


def _next(case: Case, outcome: ProposalOutcome, looks: Looks) -> tuple[str, float] | None:
    """A command whose budget has room for the fresh seeds that detect the observed difference with 80 % power at this
    level, and its seconds. After n seeds, these are n·((z_power + z_level)/z_p)². None if the proposal is decided, p is
    not between 0 and 0.5, or more seeds than `MOST_SEEDS` or time than is left are needed."""
    test = outcome.test
    if outcome.decision != "undecided" or test.p is None or not 0 < test.p < 0.5:
        return None
    seen, wanted = -special.ndtri(test.p), special.ndtri(POWER) - special.ndtri(outcome.level)
    seeds = math.ceil(len(test.seeds) * (wanted / seen) ** 2)
    if seeds > MOST_SEEDS:
        return None
    seconds = looks.seconds_each * seeds * (2 if case.replicate else 1)
    minutes, total = math.ceil(seconds / 60), case.total_budget
    if 60 * minutes > _left(case):
        return None
    changed = [f"--change={path}={json.dumps(value)}" for path, value in case.edits.items()]
    edited = [f"--set={path}={json.dumps(value)}" for path, value in case.study.written.edits.items()]
    places = {
        "--store": case.store.root,
        "--campaign": case.campaign,
        "--replicate": case.replicate,
        "--alpha": None if case.alpha == FALSE_DISCOVERIES else case.alpha,
        "--total-budget": None if total is None or math.isinf(total) else f"{math.ceil(total)}s",
        "--budget": f"{minutes}m",
    }
    options = [word for name, value in places.items() if value is not None for word in (name, str(value))]
    words = ["ablate", "judge", case.study.written.place, "--scale", case.study.scale, *changed, *edited, *options]
    return " ".join(filter(None, (shlex.join(words), plugin_options(plugin_files())))), seconds


def _ends(test: ProposalTest) -> str:
    if test.low is None and test.high is None:
        return "no interval"
    low, high = ("∞" if end is None else f"{end:+.4f}" for end in (test.low, test.high))
    return f"{low} to {high}"


def write_instructions(study: str, scale: str | None, path: Path = Path("AGENTS.md")) -> Path:
    """Write instructions for a program that proposes changes to this study. Raises ArgumentError if there are some, and
    StudyError if the study cannot be read."""
    load_study(study, scale, needs_arms=False)
    if path.exists():
        raise ArgumentError("init", "exists already: move it away, or run this in another folder", str(path))
    text = (PROJECT / "ablate" / "study" / "agents.md").read_text(encoding="utf-8")
    return write_text(path, text.format(study=study, scale="" if scale is None else f" --scale {scale}"))
