"""Training data: text with its splits and tokenizers, and synthetic tasks. No torch."""

from ablate.data.corpora import AnyCorpus, identify, open_corpus, prepare, vocabulary
from ablate.data.corpus import Corpus
from ablate.data.identity import DataIdentity, MadeCorpus, MadeSource
from ablate.data.sources import DataSource, DataSpec, Progress, parse
from store.errors import DataError, UnreachableError
