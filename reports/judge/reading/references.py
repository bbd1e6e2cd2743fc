"""Losses of simple models on the text of each arm: what a loss is worth before it is compared with another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from store import Store
from store.documents import References, StudyDocument, TextMeta
from store.documents.references import counted_tokens


@dataclass(frozen=True)
class TextReferences:
    """Losses of simple models on an arm's text, in the unit of the study's losses. `read`: n-gram models of as many
    training tokens as a run of the arm reads. `whole`: of all training tokens, as far as they are counted."""

    read: References
    whole: References

    def per_byte(self) -> TextReferences:
        return TextReferences(self.read.per_byte(), self.whole.per_byte())


def text_references(study: StudyDocument, store: Store, corpora: Mapping[str, TextMeta]) -> dict[str, TextReferences]:
    """Stored references of each arm that predicts the next token of a text. corpora: the arms' texts by digest."""
    found = {}
    for arm in study.arms:
        meta = corpora.get(arm.data)
        run = store.read_run(arm.runs[0].digest) if arm.runs and meta else None
        if meta is None or run is None or not run.predicts_next_token:
            continue
        folder, context = store.data(arm.data), run.train.get("context")
        stored = [
            folder.read_references(context, counted_tokens(tokens, meta.tokens.train))
            for tokens in (round(arm.length.tokens), None)
            if isinstance(context, int)
        ]
        losses = [each.references for each in stored if each is not None]
        if len(losses) == 2:
            found[arm.name] = TextReferences(*losses)
    return found
