"""`evals-<request>.json`: results of one evaluation request on one run.

`evals-<request>.samples.ndjson` has one line for each item of an evaluation and filter, for paired tests.
"""

from __future__ import annotations

from pydantic import Field, JsonValue

from store.documents._document import Document, JsonObject, JsonScalar, Part, Seconds


class Score(Part):
    """One metric of one task. Numbers that are not finite are null."""

    value: float | None
    """The metric, over all items."""
    stderr: float | None
    """Standard error over items, or over clusters of them."""
    higher_is_better: bool | None
    """Direction of the metric: whether higher is better; null if unknown."""
    chance: float | None
    """Score of guessing; null if guessing has no meaning."""
    items: int
    """Number of items."""


class TaskGroup(Part):
    """Tasks whose scores are averaged."""

    tasks: tuple[str, ...]
    """Tasks whose mean is the group's score."""
    missing: tuple[str, ...]
    """Tasks that were skipped."""
    by_size: tuple[str, ...]
    """Metrics averaged over items rather than over tasks."""


class Section(Part):
    """Findings of one evaluation besides its scores: a table, and facts about the whole table."""

    about: dict[str, JsonScalar] = Field(default={})
    """Settings and facts, such as the training context."""
    rows: tuple[JsonObject, ...]
    """Records with the same keys. A record that could not be computed has a `reason`."""


class EvalsDocument(Document):
    """Scores by task and metric, and further findings of the evaluations."""

    request: JsonObject
    """The evaluation spec that this answers."""
    scores: dict[str, dict[str, Score]]
    """Scores by task, or group of tasks, and metric."""
    groups: dict[str, TaskGroup] = Field(default={})
    """Groups of tasks by name."""
    skipped: dict[str, str] = Field(default={})
    """Tasks that could not be evaluated, with the reason. The next command that requests them tries again."""
    sections: dict[str, Section] = Field(default={})
    """Sections by the name of the evaluation."""
    seconds: Seconds | None = None
    """Wall time of the evaluation."""
    samples_sha256: str | None = None
    """SHA-256 of `evals-<request>.samples.ndjson`."""


class SampleRecord(Part):
    """One item: its identity, the model's answer, and the answer's scores."""

    task: str
    """The item's task."""
    document: int | None = None
    """The held-out document that the item comes from, if several items may share one; otherwise null."""
    doc_id: int
    """The item's number."""
    doc_hash: str
    """Hash that, with `doc_id`, identifies the item across runs."""
    filter: str = "none"
    """lm-eval's filter of the answers."""
    target: JsonValue = ""
    """The right answer."""
    filtered_resps: JsonValue = Field(default=[])
    """The model's answer, after the filter."""
    metrics: dict[str, JsonValue]
    """Scores by metric: a number, lm-eval's log-likelihood and size, or a `sum` and its `weight`."""
