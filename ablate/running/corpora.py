"""Prepare a study's inputs before its runs begin: corpora, and models from elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from ablate.data import AnyCorpus, Corpus, DataError, open_corpus, prepare
from ablate.data.references import references
from ablate.data.sources import Progress, TextSource
from ablate.data.splitting import SHARES
from ablate.planning.plan import Plan
from ablate.study.study import Study
from store import Store
from store.extensions import modules_of


def prepare_corpora(study: Study, store: Store, progress: Progress) -> list[AnyCorpus]:
    """Prepare every corpus of the study. Raises StudyError."""
    readers = {arm.data.model_dump_json(): arm for arm in study.arms}  # one arm for each distinct corpus
    found = []
    for arm in readers.values():
        try:
            corpus = prepare(arm.data, store.data_dir, study.folder, progress)
        except DataError as error:
            raise study.error("data", str(error)) from error
        found.append(corpus)
        if not (study.own_tokenizers and isinstance(arm.data, TextSource) and isinstance(corpus, Corpus)):
            continue
        # Bits per byte under different tokenizers are comparable only on the same text: all of it has to be read.
        tokens = {part: getattr(corpus.meta.tokens, part) for part in SHARES}
        needed = max(count * SHARES["test"] // SHARES[part] for part, count in tokens.items())
        if any(count > corpus.most_tokens(part) for part, count in tokens.items()):
            reason = (
                f"arms with different tokenizers are compared on all held-out text, which takes {needed:,} in"
                f" {arm.name}: raise it, or lower data.validation_fraction"
            )
            raise study.error("data.validation_tokens", reason)
    return found


def prepare_references(plan: Plan, store: Store) -> None:
    """Compute the losses of simple models on the text of every arm that predicts the next token, unless the store has
    them: for as many training tokens as a run reads, and for all. A second for each million tokens."""
    for arm in plan.arms:
        corpus = open_corpus(store.data(arm.identity.digest).path)
        if isinstance(corpus, Corpus) and arm.train.objective.kind == "next_token":
            for tokens in (round(arm.length.tokens), None):
                references(corpus, arm.train.context, tokens)


def prepare_sources(study: Study, store: Store, say: Callable[[str], None]) -> None:
    """Copy the models that arms need from elsewhere to the store. say: receives a line on what is used of each. Raises
    StudyError."""
    for line in receipt(study):
        say(line)
    for wing in modules_of(__name__):
        wing.prepare_sources(study, store)


def receipt(study: Study) -> list[str]:
    """Lines on what a run of the study would use of each model from elsewhere. Raises StudyError."""
    return [line for wing in modules_of(__name__) for line in wing.receipt(study)]
