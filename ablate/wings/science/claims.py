"""`ablate.claims`: the handbook of claims about transformers, with the studies that test each."""

from __future__ import annotations

from ablate.wings.science.handbook import matching
from ablate.wings.science.handbook_claim import HandbookClaim

__all__ = ["HandbookClaim", "claims"]


def claims(*words: str) -> tuple[HandbookClaim, ...]:
    """Claims of the handbook, with their sources, their standing in the literature and their tests here.

    Args:
        words: words or phrases that a claim must all contain, such as "rope" and "must tie", or one claim's id; none
            for all claims.

    Returns:
        The matching claims, sorted by topic; empty if there are none.

    Raises:
        StudyError: a file of the handbook is damaged.

    Example:
        >>> [claim.commands for claim in ablate.claims("norm-center")]
        [('ablate run norm_kind',)]
    """
    return matching(*words)
