"""Text corpora: where they come from, how they are split, and how they become tokens. No torch."""

from ablate.data.corpus import Corpus
from ablate.data.error import DataError
from ablate.data.identity import DataIdentity, identify
from ablate.data.preparation import Progress, prepare
from ablate.data.sources import DataSource
from ablate.data.spec import DataSpec, parse

__all__ = [
    "Corpus",
    "DataError",
    "DataIdentity",
    "DataSource",
    "DataSpec",
    "Progress",
    "identify",
    "parse",
    "prepare",
]
