"""Progress of a study's runs.

Engines only report when runs begin and end. Everything else is read from the store, and so does not depend on where the
workers run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ablate.readable import clock, short
from ablate.running.engines import Event
from ablate.running.request import Request
from store import Store
from store.claims import Watch
from store.documents import MetricsRecord, ReferenceLosses, TextMeta
from store.documents.study_arm import STEPS

OVERTIME = 0.1
"""A current run's estimated remaining time is at least this share of its time so far."""
SILENT_SECONDS = 20.0
"""Seconds without a heartbeat after which a process's silence is shown."""
PHASES = {"train": "starting", "measure": "measuring", "evals": "evaluating"}


@dataclass
class Run:
    """Progress of a run, as read from the store."""

    label: str
    request: Request
    steps: int
    work: float
    watch: Watch
    step: int = 0
    doing: str = "starting"
    share: float = 0.0
    """Completed share of the current phase."""
    began: float | None = None
    """Time of the run's start by the monotonic clock; once its worker is seen to hold the claim, time of that."""
    claimed: bool = False
    is_new: bool = True
    """Whether the run had no steps before this command."""
    blind: bool = False
    """Whether its losses are not shown."""

    def look(self, store: Store) -> None:
        missing, holder = self.request.missing(), self.watch.holder()
        if holder is not None and not self.claimed:
            self.claimed, self.began = True, time.monotonic()
        last = store.last_step(self.request.digest)
        self.step = last.step if last else 0
        if last and missing[:1] == ["train"]:
            self.doing, self.share = step_text(last, self.steps, blind=self.blind), last.step / self.steps
        elif missing and store.log_path(self.request.digest).exists():
            count = holder.count if holder else None
            self.doing = f"{PHASES[missing[0]]}{f': {count}' if count else ''}"
            self.share = count.done / count.total if count else 0.0
        elif missing:
            self.doing = "queued"
        if holder is not None and self.watch.silent_seconds >= SILENT_SECONDS:
            silent, timeout = clock(self.watch.silent_seconds), clock(self.request.execution.stall_timeout)
            self.doing = f"process {holder.pid} sent no heartbeat for {silent} (timeout {timeout})"


def step_text(record: MetricsRecord, steps: int, *, blind: bool = False) -> str:
    """`step 120/400  loss 3.214  5.2k tokens/s`; blind: without the loss."""
    loss = "" if blind else f"loss {'not finite' if record.loss is None else f'{record.loss:.3f}'}  "
    return f"step {record.step}/{steps}  {loss}{short(record.tokens_per_second or 0.0)} tokens/s"


@dataclass
class WorkRate:
    """Work per second while steps are taken, excluding the time before the first step and after the last."""

    before: float
    """Work done before the current stage."""
    since: float
    """Last time at which the work was still `before`."""
    work: float = field(init=False)
    until: float = field(init=False)
    """First time at which `work` was seen."""

    def __post_init__(self) -> None:
        self.work, self.until = self.before, self.since

    @property
    def done(self) -> float:
        return self.work - self.before

    def see(self, work: float, now: float) -> None:
        if work <= self.before:
            self.since = self.until = now
        elif work > self.work:
            self.work, self.until = work, now

    def seconds(self, work: float) -> float | None:
        """Estimated seconds for this work; None if none is left, or nothing was done yet."""
        return work * (self.until - self.since) / self.done if work > 0 and self.done > 0 else None


@dataclass
class Progress:
    """Follows the runs of a study. Subclasses draw it."""

    store: Store
    title: str
    labels: Mapping[str, tuple[str, int]]
    blind: bool = False
    """Whether losses are not shown, so that seeing them is no look at the question."""
    runs: dict[str, Run] = field(default_factory=dict, init=False)
    current: dict[str, Run] = field(default_factory=dict, init=False)
    finished: int = field(default=0, init=False)
    failed: int = field(default=0, init=False)
    stage: str = field(default="", init=False)
    """Name of the current stage if others follow, in which case the time left is for this stage alone."""
    _pace: WorkRate = field(default_factory=lambda: WorkRate(0.0, 0.0), init=False)
    _spent: float = field(default=0.0, init=False)
    """Seconds that runs took that this command executed from start to end."""
    _ended: float = field(default=0.0, init=False)
    """Work of the runs in `_spent`."""
    _at_once: int = field(default=1, init=False)
    """Largest number of concurrent runs seen; between the end of a run and the start of the next there are fewer."""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def work(self, what: str, share: float) -> None:
        """Show the progress of work other than runs. share: completed fraction."""
        raise NotImplementedError

    def data(self, stage: str, share: float) -> None:
        """Show a stage of preparing a corpus."""
        self.work(f"data: {stage}", share)

    def begin(self, requests: Sequence[Request], stage: str = "") -> None:
        """Begin a stage with these runs. stage: its name, if others follow."""
        self.stage = stage
        for request in requests:
            arm, seed = self.labels[request.digest]
            steps = request.identity.steps
            run = Run(f"{arm} seed {seed}", request, steps, float(steps), Watch(self.store.run_dir(request.digest)))
            run.blind = self.blind
            run.look(self.store)
            run.is_new = not run.step
            self.runs[request.digest] = run
        self._pace = WorkRate(self._work_done(), time.monotonic())

    def show(self, event: Event | None) -> None:
        """Take in an event, or None between events, and redraw."""
        if event is not None:
            self._take(event)
        for run in self.current.values():
            run.look(self.store)
        self._pace.see(self._work_done(), time.monotonic())
        self.draw()

    def _take(self, event: Event) -> None:
        run = self.runs[event.digest]
        if event.kind == "started":
            self.current[event.digest] = run
            self._at_once = max(self._at_once, len(self.current))
            run.began = time.monotonic()
            return
        self.current.pop(event.digest)
        run.step = run.steps
        if event.kind == "finished" and run.began is not None and run.is_new:
            self._spent += time.monotonic() - run.began
            self._ended += run.work
        if event.kind == "failed":
            self.failed += 1
            self.say(f"{run.label}: failed: {event.error}")
        else:
            self.finished += 1
            self.say(f"[{self.finished + self.failed}/{len(self.runs)}] {run.label}: {self._outcome(event)}")

    def _outcome(self, event: Event) -> str:
        result = self.store.read_result(event.digest)
        if result is None:
            raise RuntimeError(f"run {event.digest} has no result after it ended")
        if self.blind:
            return f"ended  {short(result.training_speed or 0.0)} tokens/s"
        if result.status == "diverged":
            return f"diverged: {result.reason}"
        if result.bits_per_byte is None:  # a synthetic task
            score = f"accuracy {result.accuracy:.4f}"
        else:
            score = f"{result.bits_per_byte:.4f} bits/byte"
        text = f"loss {result.loss:.4f}  {score}  {short(result.training_speed or 0.0)} tokens/s"
        # Stalled: token frequencies alone explain the loss, after enough steps to learn more.
        known = self._references(event.digest) if result.steps >= STEPS else None
        if known is not None and result.loss is not None and result.loss > known.stalled_above:
            text += f"  stalled: the unigram loss is {known.unigram:.3f}"
        return text

    def _references(self, digest: str) -> ReferenceLosses | None:
        """Reference losses of a run's text; None for synthetic tasks and for other objectives than the next token."""
        run = self.store.read_run(digest)
        if run is None or not run.predicts_next_token:
            return None
        corpus = self.store.data(run.data.digest)
        meta = corpus.read() if corpus.is_known else None
        return meta.references if isinstance(meta, TextMeta) else None

    def _work_done(self) -> float:
        return sum(run.work * run.step / run.steps for run in self.runs.values())

    def summary(self) -> str:
        """`norm_placement  4/9 runs  about 2:10 left`, with the stage's name if others follow."""
        failed = f"  {self.failed} failed" if self.failed else ""
        text = f"{self.title}  {self.finished}/{len(self.runs)} runs{failed}"
        left = self.seconds_left()
        if left is None:
            return text
        of_stage = f" of {self.stage}" if self.stage else ""
        return f"{text}  about {clock(max(1.0, left))} {'left' if self._ended else 'of training left'}{of_stage}"

    def seconds_left(self) -> float | None:
        """Estimated seconds left, from the durations of completed runs, measuring and evaluation included.

        Before a run has completed, the estimate covers training alone, from the rate of steps; None before 2 % of the
        stage's steps are done.
        """
        if not self._ended:
            total = sum(run.work for run in self.runs.values())
            if self._pace.done < 0.02 * (total - self._pace.before):
                return None
            return self._pace.seconds(total - self._pace.work)
        now, per_work = time.monotonic(), self._spent / self._ended
        waiting = sum(r.work for d, r in self.runs.items() if d not in self.current and r.step < r.steps)
        # A run that has taken longer than expected is not assumed to end at once.
        begun = [(r.work, now - r.began) for r in self.current.values() if r.began is not None]
        current = [max(per_work * work - taken, OVERTIME * taken) for work, taken in begun]
        left = sum(run.step < run.steps for run in self.runs.values())
        return (per_work * waiting + sum(current)) / max(1, min(self._at_once, left))

    def say(self, line: str) -> None:
        """Print a permanent line."""
        raise NotImplementedError

    def draw(self) -> None:
        """Show the progress of the current runs."""
        raise NotImplementedError

    def close(self) -> None:
        """End the output."""
