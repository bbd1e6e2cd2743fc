"""`evals-<request>.samples.ndjson`: one line for each item of an evaluation and filter, for paired tests."""

from __future__ import annotations

from pydantic import Field, JsonValue

from ablate.store.documents._document import Part


class SampleRecord(Part):
    """One item: which it is, what the model answered, how that scored."""

    task: str
    """The task that the item is of."""
    document: int | None = None
    """The held-out text that the item is from, where several items may be from one; else null."""
    doc_id: int
    """The item's number."""
    doc_hash: str
    """With `doc_id`, the same for the same item in every run."""
    filter: str = "none"
    """lm-eval's filter, through which the answers went."""
    target: JsonValue = ""
    """The right answer."""
    filtered_resps: JsonValue = Field(default=[])
    """What the model answered."""
    metrics: dict[str, JsonValue]
    """A number, lm-eval's log-likelihood and size, or a `sum` and its `weight`, by metric."""
