"""`evals-<request>.json`: what one evaluation request found on one run."""

from __future__ import annotations

from pydantic import Field

from ablate.store.documents._document import Document, JsonObject, JsonScalar, Part


class Score(Part):
    """One metric of one task. Null where there is no finite number."""

    value: float | None
    """The metric, over all items."""
    stderr: float | None
    """Standard error over items, or over what they are clustered in."""
    higher_is_better: bool | None
    """Null where it is not known."""
    chance: float | None
    """What guessing scores; null where the notion does not apply."""
    items: int
    """How many items the score is over."""


class TaskGroup(Part):
    """Tasks whose scores are averaged."""

    tasks: tuple[str, ...]
    """Those that the group's score is the mean of."""
    missing: tuple[str, ...]
    """Those that were skipped."""
    by_size: tuple[str, ...]
    """Metrics in whose mean every item counts the same, rather than every task."""


class Section(Part):
    """What one evaluation found beside its scores: one table, and what holds for all of it."""

    about: dict[str, JsonScalar] = Field(default={})
    """Settings and facts, such as the training context."""
    rows: tuple[JsonObject, ...]
    """Records with the same keys. One that could not be had has a `reason`."""


class EvalsDocument(Document):
    """Scores by task and metric, and what evaluations found beside them."""

    request: JsonObject
    """The evaluation spec that this answers."""
    scores: dict[str, dict[str, Score]]
    """By task, or group of tasks, and metric."""
    groups: dict[str, TaskGroup] = Field(default={})
    """Groups of tasks by name."""
    skipped: dict[str, str] = Field(default={})
    """Tasks that could not be evaluated, with the reason. The next command that asks for them tries again."""
    sections: dict[str, Section] = Field(default={})
    """By the name of the evaluation."""
