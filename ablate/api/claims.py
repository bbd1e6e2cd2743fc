"""`ablate.claims`: the handbook of what is claimed about transformers, and what tests each claim."""

from __future__ import annotations

from ablate.store.documents.handbook import HandbookClaim
from ablate.study.handbook import matching


def claims(*words: str) -> tuple[HandbookClaim, ...]:
    """Claims of the handbook, with their sources, their standing in the literature and what tests them here.

    Args:
        words: words or phrases that are all in the claims that are returned, such as "rope" and "must tie", or one
            claim's id; none for all claims.

    Returns:
        The claims, by topic; none where no claim has all the words.

    Raises:
        StudyError: a file of the handbook is damaged.

    Example:
        >>> [claim.commands for claim in ablate.claims("norm-center")]
        [('ablate run norm_kind',)]
    """
    return matching(*words)
