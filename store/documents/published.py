"""A published table that a study replicates: figures and findings with their source."""

from __future__ import annotations

from pydantic import Field

from store.documents._document import Part, is_none
from store.documents.claims import Expectation


class StudyPublishedRow(Part):
    """A row: a published comparison of two arms."""

    arm: str
    """The study's arm."""
    against: str | None
    """The arm that it is compared with; null for an arm that is expected to stall."""
    label: str
    """The arm's name in the paper."""
    figure: float | None = Field(default=None, exclude_if=is_none)
    """Published figure of the arm."""
    other: float | None = Field(default=None, exclude_if=is_none)
    """Published figure of the arm that it is compared with."""
    expect: Expectation
    """Finding of the paper."""
    unchecked: bool
    """Whether a figure is quoted from memory."""

    @property
    def difference(self) -> float | None:
        """Published figure of the arm minus that of the other; None if either is missing."""
        return None if self.figure is None or self.other is None else self.figure - self.other


class StudyPublished(Part):
    """A published table. Its n rows are, in order, the study's last n claims."""

    source: str
    """Paper and table."""
    measure: str
    """Quantity of the figures, in words."""
    where: str | None
    """Sizes, data and lengths of the paper."""
    nats: bool
    """Whether differences of the figures are in nats per token, as the study's are."""
    rows: tuple[StudyPublishedRow, ...]
    """Rows in the order of the study."""
