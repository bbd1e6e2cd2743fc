"""The keys of a study that state what is expected of its arms."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ablate.study.layering import LayerRule, replaced
from ablate.wings.science.claim_spec import ClaimSpec
from ablate.wings.science.published_spec import PublishedTable
from zoo.settings.axis import Spec, is_off


class ClaimKeys(Spec):
    """Keys of a study."""

    claims: Annotated[tuple[ClaimSpec, ...], Field(strict=False)] = Field(default=(), exclude_if=is_off)
    """Expected outcomes of the arms, with their sources: the report says which of them hold."""
    published: Annotated[PublishedTable | None, LayerRule(replaced)] = Field(default=None, exclude_if=is_off)
    """A published table that the study replicates: figures of its arms, each of which is a claim."""


KEYS = ClaimKeys


def published_table(sections: object) -> PublishedTable | None:
    """The published table that a study with these sections replicates."""
    return sections.published if isinstance(sections, ClaimKeys) else None


def claims_of(sections: object, baseline: str) -> tuple[ClaimSpec, ...]:
    """Expectations of the arms: the claims of the study, then the rows of its published table."""
    if not isinstance(sections, ClaimKeys):
        return ()
    return (*sections.claims, *(sections.published.claims(baseline) if sections.published else ()))
