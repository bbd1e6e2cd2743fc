"""Indexes of large stores: a command on a hundred thousand runs reads a few files instead of one for each run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ablate.wings import Wing

if TYPE_CHECKING:
    from ablate.wings.index.index import KnownOutcomes

WING = Wing(adds={"store.store": "", "store.tables": "index"})


def known_outcomes(root: Path) -> KnownOutcomes | None:
    """Outcomes in the index of a store; None if it has none."""
    from store.stamps import index_path  # noqa: PLC0415 (the declaration loads nothing)

    if not index_path(root, "results").exists():
        return None
    from ablate.wings.index.index import KnownOutcomes  # noqa: PLC0415 (polars is slow to import)

    return KnownOutcomes(root)
