"""`evals-<request>.samples.ndjson`: one line for each item of an evaluation and filter, for paired tests."""

from __future__ import annotations

from pydantic import Field, JsonValue

from store.documents._document import Part


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
