"""Training data: text with its splits and tokenizers, and synthetic tasks. No torch."""

from ablate.data.corpora import AnyCorpus, identify, open_corpus, prepare, vocabulary
from ablate.data.corpus import Corpus
from ablate.data.identity import DataIdentity
from ablate.data.sources import DataSource, DataSpec, Progress, parse
from ablate.data.sources._synthetic import SyntheticSource
from ablate.data.synthetic import SyntheticCorpus
from store.errors import DataError, UnreachableError

__all__ = [
    "AnyCorpus",
    "Corpus",
    "DataError",
    "DataIdentity",
    "DataSource",
    "DataSpec",
    "Progress",
    "SyntheticCorpus",
    "SyntheticSource",
    "UnreachableError",
    "identify",
    "open_corpus",
    "parse",
    "prepare",
    "vocabulary",
]
