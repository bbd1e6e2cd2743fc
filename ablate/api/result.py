"""A study's result: frames, verdicts, figures, and the page that shows them all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

import reports
from ablate.api.frames import arms_frame, changes_frame, contrasts_frame, effects_frame, runs_frame, scores_frame
from ablate.running.stages import Failure, StudyRunner
from reports.judge.findings.next_steps import NextStep
from reports.judge.findings.study_summary import ArmSummary, StudySummary
from store import Store, StudyFolder
from store.documents import JsonObject
from store.errors import ArgumentError
from zoo.errors import did_you_mean

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Verdict:
    """A study's verdict on one arm.

    Attributes:
        arm: the arm's name.
        word: `baseline`, `better`, `worse`, `no difference`, `inconclusive`, `cannot tell`, `no verdict`, `stalled` or
            `diverged`.
        sentence: the verdict in full, with the numbers behind it.
        difference: difference in loss, arm − baseline; None for the baseline, or if there is none.
        interval: interval of the difference, corrected for the number of looks; None if there is none.
        p: p-value, corrected for the number of arms; None if there is none.
        seeds_needed: number of further seeds that would probably settle the verdict; None if it is settled or no number
            would.
    """

    arm: str
    word: str
    sentence: str
    difference: float | None
    interval: tuple[float, float] | None
    p: float | None
    seeds_needed: int | None


@dataclass(frozen=True)
class StudyResult:
    """The result of a study. In a notebook it displays as the answer, the table and the main figure.

    Attributes:
        name, scale: name and scale of the study.
        store: the store with its runs.
        summary: intervals, differences and verdicts as objects; None if tuning failed, so that nothing was compared.
        report: the page, one self-contained HTML file; None if it was not rendered.
        failed: runs that failed, with the reasons.
        skipped: evaluations that were skipped, a line for each.
        statuses: arm, seed and status of every requested run, tuning included, by digest.
        trained, reused: number of runs that were trained, and that the store had.
        promoted: the study that confirms the better effects of a design with fresh seeds, if one was written.
        at_once: number of runs that were trained at once, from which the times of `next` are estimated.
    """

    name: str
    scale: str
    store: Store
    summary: StudySummary | None
    report: Path | None
    failed: tuple[Failure, ...] = ()
    skipped: tuple[str, ...] = ()
    statuses: tuple[JsonObject, ...] = ()
    trained: int = 0
    reused: int = 0
    promoted: Path | None = None
    at_once: int = 1

    @classmethod
    def of(
        cls, runner: StudyRunner, summary: StudySummary | None, report: Path | None, promoted: Path | None = None
    ) -> StudyResult:
        """The result of a runner. `summary` and `report` are None if it stopped before the study's arms."""
        study, store = runner.study, runner.store
        return cls(
            name=study.name,
            scale=study.scale,
            store=store,
            summary=summary,
            report=report,
            failed=tuple(runner.failures),
            skipped=tuple(runner.skipped()),
            statuses=tuple(runner.statuses()),
            trained=sum(store.outcome(digest) is not None for digest, new in runner.to_train.items() if new),
            reused=sum(not new for new in runner.to_train.values()),
            promoted=promoted,
            at_once=runner.context.engine.at_once,
        )

    @classmethod
    def stored(cls, folder: Path) -> StudyResult:
        """The result in a study's folder of a store. Raises ReportError if the study cannot be reported on."""
        store = Store.of_study(folder)
        summary = reports.summarise(folder, store)
        page = StudyFolder(folder).report_path
        keys = summary.runs.select("digest", "arm", "seed").rows(named=True)
        rows = [key | {"status": store.status(key["digest"])} for key in keys]
        failed = [Failure.stored(store, row["digest"], row["arm"], row["seed"]) for row in rows]
        return cls(
            name=summary.study.name,
            scale=summary.study.scale,
            store=store,
            summary=summary,
            report=page if page.exists() else None,
            failed=tuple(failure for failure in failed if failure is not None),
            statuses=tuple(rows),
            reused=len(rows),
        )

    @cached_property
    def arms(self) -> pl.DataFrame:
        """A row for each arm: verdict, loss with its interval, speed, memory, cache bytes, budget, edits, seeds."""
        return arms_frame(self._arms)

    @cached_property
    def runs(self) -> pl.DataFrame:
        """A row for each run of the arms: digest, arm, seed, status, loss, speed, memory, steps, tokens, time."""
        return runs_frame(self.summary)

    @cached_property
    def contrasts(self) -> pl.DataFrame:
        """A row for each arm but the baseline: its paired difference in loss, interval, p values, ratios, verdict."""
        return contrasts_frame(self.summary)

    @cached_property
    def effects(self) -> pl.DataFrame:
        """A row for each effect of a factorial design: its factors, aliases, size in loss, interval, p values and
        verdict. Empty without a design."""
        return effects_frame(self.summary)

    @cached_property
    def changes(self) -> pl.DataFrame:
        """A row for each arm and smaller rung of the ladder: change of the difference from that rung to the last."""
        return changes_frame(self.summary)

    @cached_property
    def scores(self) -> pl.DataFrame:
        """A row for each arm, task and metric: the mean over seeds, its standard error, half its interval, chance."""
        return scores_frame(self._arms)

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        """The verdict on each arm, by its name; the baseline first."""
        return {} if self.summary is None else {arm.name: _verdict(self.summary, arm) for arm in self._arms}

    @property
    def _arms(self) -> tuple[ArmSummary, ...]:
        return self.summary.arms if self.summary else ()

    @cached_property
    def headline(self) -> str:
        """The answer in a sentence or two."""
        return "No arm has been trained." if self.summary is None else reports.headline(self.summary)

    @cached_property
    def _drawn(self) -> dict[str, go.Figure]:
        return {} if self.summary is None else reports.figures_of(self.summary)

    def figures(self) -> list[str]:
        """The names of the figures that this result has, in the order of the page."""
        return list(self._drawn)

    def figure(self, name: str) -> go.Figure:
        """One figure of the page, as a Plotly figure to show, edit or write to a file.

        Args:
            name: one of `figures()`; case and hyphens do not matter.

        Raises:
            ArgumentError: there is no such figure.

        Example:
            >>> result.figure("tradeoff").update_layout(width=800)
        """
        import plotly.graph_objects as go  # noqa: PLC0415 (slow to load, and a terminal shows no figure)

        known = {_bare(key): figure for key, figure in self._drawn.items()}
        if _bare(name) not in known:
            near = did_you_mean(name, self._drawn) or f": one of {', '.join(self._drawn)}"
            raise ArgumentError("name", f"there is no figure '{name}'{near}")
        return go.Figure(known[_bare(name)])

    def table(self) -> tuple[tuple[str, ...], ...]:
        """Rows of text for a terminal, the header first."""
        return () if self.summary is None else reports.table(self.summary)

    def notes(self) -> list[str]:
        """Notes beside table and headline: declared contrasts, outcomes of claims, changes of differences with size and
        length, reasons for withheld verdicts, and detectable differences."""
        return reports.notes(self.summary) if self.summary else []

    @cached_property
    def next(self) -> list[str]:
        """Suggested next commands, a sentence for each, with its reason, time and probability of success."""
        return [step.words(self.at_once) for step in self._steps]

    @property
    def _steps(self) -> tuple[NextStep, ...]:
        return reports.next_steps(self.summary) if self.summary else ()

    def document(self) -> JsonObject:
        """The document that `ablate run --json` prints."""
        return {
            "study": self.name,
            "scale": self.scale,
            "report": str(self.report) if self.report else None,
            "trained": self.trained,
            "reused": self.reused,
            "failed": len(self.failed),
            "runs": list(self.statuses),
            "headline": self.headline,
            "notes": [*self.notes()],
            "rates": reports.rates(self.summary) if self.summary else None,
            "promoted": str(self.promoted) if self.promoted else None,
            "next": [step.document(self.at_once) for step in self._steps],
            **(
                reports.documents(self.summary)
                if self.summary
                else {"arms": [], "effects": [], "claims": [], "caveats": [], "changes": []}
            ),
        }

    def __repr__(self) -> str:
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"<StudyResult {self.name} at {self.scale}: {len(self._arms)} arms{failed}: {self.headline}>"

    def _repr_html_(self) -> str:
        failures = "".join(f"<p>failed: {escape(str(failure))}</p>" for failure in self.failed)
        return failures + (f"<p>{self.headline}</p>" if self.summary is None else reports.notebook_cell(self.summary))


def _verdict(summary: StudySummary, arm: ArmSummary) -> Verdict:
    found = arm.comparison.difference if arm.comparison else None
    return Verdict(
        arm=arm.name,
        word=arm.verdict,
        sentence=reports.sentence(summary, arm),
        difference=found.mean if found else None,
        interval=None if found is None or found.low is None or found.high is None else (found.low, found.high),
        p=arm.comparison.p_holm if arm.comparison else None,
        seeds_needed=arm.seeds_needed,
    )


def _bare(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")
