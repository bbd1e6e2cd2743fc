"""The plan of a study, as `ablate.plan` returns it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, cast

from pydantic import JsonValue

from ablate.planning.campaign import Foreseen
from ablate.planning.durations import Duration, busy_line, duration
from ablate.planning.foresight import Detection
from ablate.planning.plan import ArmPlan, Plan
from ablate.planning.plan_shown import (
    brought_lines,
    matched_line,
    plan_json,
    plan_rows,
    refusal_lines,
    remarks,
    tuning_runs,
)
from ablate.planning.prospects import Prospects
from ablate.planning.study_document import Corpora, length_lines, prepared, study_rates
from ablate.running.corpora import receipt
from ablate.running.options import Options
from ablate.study.study import Study
from evals.costs.machine import Speed
from store import Store
from store.documents import JsonObject
from store.extensions import modules_of

if TYPE_CHECKING:
    import polars as pl

EXPORTS = f"{__name__}.exports"
"""Place of what says how arms could be exported."""


@dataclass(frozen=True, kw_only=True)
class StudyPlan(Foreseen):
    """A study's planned arms and runs. In a notebook it displays as the table of its arms.

    Attributes:
        outcome: every rung of the study's ladder with its arms and runs, as objects.
        tuned: whether nothing is left to tune; if not, arms have the settings that the study gives them.
        tuning: the trials of an unfinished tuning, as far as results determine them; for each run the arm that is
            tried, and whether the run has a result.
        starts: where the searches for learning rates of an unfinished tuning begin, by arm; empty for grids.
        speed: this machine's measured speed, from which times are estimated.
        done: whether the store has a run's result, by digest.
        asked: the study as it was read, tuning included.
        execution: the options of execution.
        at_once: the number of concurrent runs.
    """

    speed: Speed
    done: dict[str, bool]
    store: Store
    asked: Study
    execution: Options
    at_once: int

    @property
    def study(self) -> Study:
        """The study with the settings that tuning chose."""
        return self.outcome.plan.study

    @property
    def planned(self) -> tuple[ArmPlan, ...]:
        """The arms of the last rung as objects, with their specs, budgets and runs."""
        return self.outcome.plan.arms

    @cached_property
    def arms(self) -> pl.DataFrame:
        """A row for each arm of each rung: parameters, FLOPs, tokens, steps, cache bytes, estimated time and peak
        memory of a run."""
        from ablate.planning.plan_frames import frame_of_arms  # noqa: PLC0415 (takes long, and a terminal shows no frame)

        kinds = {name: kind for each in self.forecasts for name, kind in each.fields.items()}
        return frame_of_arms(self.outcome, self.speed, self._foretold, kinds)

    @cached_property
    def runs(self) -> pl.DataFrame:
        """A row for each run: its digest, arm, seed, rung of the ladder, and whether the store has it already."""
        from ablate.planning.plan_frames import frame_of_runs  # noqa: PLC0415 (takes long, and a terminal shows no frame)

        return frame_of_runs(self.outcome, self.done)

    @cached_property
    def prospects(self) -> Prospects:
        """The difference that the study will probably detect, or the reason why it will judge nothing."""
        return Prospects(self.outcome, self.store, self.asked)

    @property
    def detectable(self) -> float | None:
        """The difference in nats that the study detects with 80 % power; None if nothing is compared or judged."""
        return self.prospects.detectable

    def detect(self, difference: float) -> Detection:
        """Find the number of seeds that detect a difference with 80 % power, and the time that they take.

        Args:
            difference: a difference in nats, above 0.
        """
        seeds, judged = self.prospects.seeds(difference), self.prospects.judged
        trained = (seeds or 0) * sum(arm.estimated_seconds(self.speed) for arm in self.planned)
        faster = self.execution.speed_up(self.at_once)
        tuning = self._tuning_seconds / faster if seeds else None
        seconds = None if tuning is None else trained / faster + tuning
        after, reason = max(judged.seeds, default=None), self.prospects.without_verdicts
        tunes = self.asked.tune is not None
        return Detection(difference, seeds, seconds, after, judged.fresh, reason, tuning, tunes)

    def document(self) -> JsonObject:
        """JSON form, for `ablate plan --json`."""
        planned = plan_json(self.outcome, self.speed, done=self.done, corpora=self.corpora, foretold=self._foretold)
        rates = study_rates(self.asked).model_dump()
        arms: list[JsonValue] = [
            {
                **arm,
                "export": self.exports.get(str(arm["name"])),
                "detectable": None if arm["name"] == self.study.baseline else self.detectable,
            }
            for arm in cast(list[JsonObject], planned["arms"])
        ]
        return {
            **planned,
            "arms": arms,
            "pilot": bool(self.study.sections.pilot),
            "unjudged": self.prospects.unjudged,
            "tuned": self.tuned,
            "tuning": None if self.tuned else {"done": self._tuning_done, "next": len(self.tuning) - self._tuning_done},
            "rates": rates,
            "starts": {arm: start.model_dump(mode="json") for arm, start in self.starts.items()},
            "recompute": self.execution.recompute,
            "at_once": self.at_once,
            "seconds": None if self.study.is_search_alone else self.time.document(),
            "detectable": self.detectable,
            "likely_standing": self.prospects.standing.document() if self.prospects.standing else None,
            "unread": list(self.unread),
            "detectable_source": None if self.detectable is None else self.prospects.foresight.source,
        }

    @property
    def refusals(self) -> list[str]:
        """A line for each arm whose runs cannot be executed with these options."""
        return [line for rung in self.outcome.rungs for line in refusal_lines(rung.plan.arms, self.execution)]

    @cached_property
    def exports(self) -> dict[str, JsonObject]:
        """The transformers architecture that `ablate.export` would write for each arm; empty if transformers is not
        installed. Takes seconds, to load transformers."""
        return {arm: each for wing in modules_of(EXPORTS) for arm, each in wing.exports(self.planned).items()}

    def tables(self, details: bool = False) -> list[tuple[str | None, list[tuple[str, ...]]]]:
        """A table of text for each rung, the header first, with the rung's name; None without a ladder.

        Args:
            details: also show the peak memory of a run, which is shown anyway if a run may not fit.
        """

        def cells(plan: Plan, arm: ArmPlan) -> dict[str, str]:
            return {key: text for each in self.forecasts for key, text in each.cells(plan, arm, details).items()}

        plans = [rung.plan for rung in self.outcome.rungs]
        return [(plan.study.rung, plan_rows(plan, self.speed, self.corpora, cells)) for plan in plans]

    def notes(self, details: bool = False) -> list[str]:
        """Lines below the tables: the matched quantities, the tuning, and the number of runs.

        Args:
            details: also name the transformers architecture that each arm can be exported as.
        """
        compared = [] if self.study.is_search_alone else [matched_line(self.outcome.plan)]
        notes = [*brought_lines(self.asked), *compared, *remarks(self.asked, self.tuned, self.starts)]
        notes += receipt(self.asked)
        notes += length_lines(self.outcome.plan, self.corpora)
        notes += self.refusals
        for each in self.forecasts:
            notes += each.remarks()
        for wing in modules_of(EXPORTS) if details else ():
            notes += wing.lines(self.exports)
        if self.study.is_search_alone:
            at_once = self.execution.speed_up(self.at_once)
            for wing in modules_of(__name__):
                notes += wing.plan_lines(self.study, self.planned[0], self.speed, at_once)
            return [*notes, "no arms: `ablate search` searches the study's space, with this budget for each trial"]
        notes += self.prospects.lines()
        if self._tuning_done:
            there = f"{self._tuning_done} of its runs are in {self.store.root}/"
            notes.append(f"tuning has begun: {there}; planned next: {len(self.tuning) - self._tuning_done}")
        there = f"of which {sum(self.done.values())} are in {self.store.root}/ already"
        if self.unread:
            there = f"an unknown number of which are in {self.store.root}/ already: a text could not be read"
            notes += self.unread
        notes.append(f"{len(self.done)} runs, {there}")
        return [
            *notes,
            *([f"{self.at_once} run{'s' * (self.at_once > 1)} at once: {self.time}"] if str(self.time) else []),
            *busy_line(self.at_once),
        ]

    @cached_property
    def unread(self) -> tuple[str, ...]:
        """Distinct reasons why texts could not be read. Without them costs are known, but not which runs are done."""
        arms = (arm for rung in self.outcome.rungs for arm in rung.plan.arms)
        return tuple(dict.fromkeys(arm.identity.unread for arm in arms if arm.identity.unread))

    @cached_property
    def time(self) -> Duration:
        """The estimated time of the missing runs, tuning included."""
        plans = [rung.plan for rung in self.outcome.rungs]
        missing = {run.digest: self._missing(plan, run.digest) for plan in plans for run in plan.runs}
        found = duration(plans, missing, self.store, self.speed, self._tuning_seconds)
        return found / self.execution.speed_up(self.at_once)

    @property
    def _tuning_done(self) -> int:
        """Number of runs of an unfinished tuning that have a result."""
        return sum(is_done for _, is_done in self.tuning)

    @property
    def _tuning_seconds(self) -> float:
        """Estimated seconds of the remaining tuning: its expected total less the runs that are done, but at least the
        runs that are known to follow."""
        tune = self.asked.tune
        if self.tuned or tune is None:
            return 0.0
        arms = [arm for rung in self.outcome.rungs for arm in rung.plan.arms]
        whole = tuning_runs(tune, self.starts) * sum(arm.estimated_seconds(self.speed) for arm in arms)
        done, left = (
            sum(arm.estimated_seconds(self.speed) for arm, is_done in self.tuning if is_done is wanted)
            for wanted in (True, False)
        )
        return max(whole - done, left)

    def _missing(self, plan: Plan, digest: str) -> list[str]:
        """Phases of a run without a result; none for a run with one, whose other results are not looked up here."""
        phases = {"train": True, "measure": plan.measures(digest), "evals": plan.evals is not None}
        return [phase for phase, wanted in phases.items() if wanted and not self.done[digest]]

    @cached_property
    def forecasts(self) -> list[Any]:
        """Forecasts of wings for the arms' runs."""
        return [wing.forecasts(self) for wing in modules_of(f"{__name__}.arms")]

    def _foretold(self, rung: Plan, arm: ArmPlan) -> JsonObject:
        """Fields of an arm that are foretold."""
        return {key: value for each in self.forecasts for key, value in each.foretold(rung, arm).items()}

    @cached_property
    def corpora(self) -> Corpora:
        """Corpora that the store has prepared, by digest."""
        return prepared(self.store, self.outcome.plan)

    def __repr__(self) -> str:
        return f"<StudyPlan {self.study.name} at {self.study.scale}: {len(self.planned)} arms, {len(self.done)} runs>"

    def _repr_html_(self) -> str:
        from reports.page.wording.table import html_table  # noqa: PLC0415 (statistics are slow to load)

        parts = [f"<p><strong>{escape(self.study.question)}</strong></p>"]
        for rung, rows in self.tables():
            if rung is not None:
                parts.append(f"<p>{escape(rung)}</p>")
            parts.append(html_table(rows))
        return "".join([*parts, *(f"<p>{escape(note)}</p>" for note in self.notes())])
