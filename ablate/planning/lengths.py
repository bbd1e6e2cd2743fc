"""Training length of arms, and reference losses of their text, for plan, terminal and report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from ablate.planning.plan import ArmPlan, Plan
from ablate.training.objectives.next_token import NextToken
from store import Store
from store.documents import TextMeta
from store.documents.length import undertrained

Corpora = Mapping[str, TextMeta]
"""Prepared text by its digest."""
NO_CORPORA: Corpora = MappingProxyType({})
MANY_EPOCHS = 4
"""Up to this many epochs, repeated text is worth nearly as much as new text (Muennighoff et al. 2023,
arXiv:2305.16264)."""


def prepared(store: Store, plan: Plan) -> Corpora:
    """Text corpora of a plan that are prepared in the store."""
    folders = {arm.identity.digest: store.data(arm.identity.digest) for arm in plan.arms}
    found = {digest: folder.read() for digest, folder in folders.items() if folder.path.is_dir()}
    return {digest: meta for digest, meta in found.items() if isinstance(meta, TextMeta)}


def epochs(arm: ArmPlan, corpora: Corpora) -> float | None:
    """Number of epochs in a run; None if the corpus is not prepared, or not text."""
    meta = corpora.get(arm.identity.digest)
    return None if meta is None else arm.tokens / meta.tokens.train


def length_lines(plan: Plan, corpora: Corpora) -> Iterator[str]:
    """Warnings of arms that train too briefly or repeat their text too often, and reference losses per corpus."""
    if found := undertrained({arm.name: arm.length for arm in plan.arms}):
        yield found
    # A line for each corpus that an arm repeats too often.
    for digest, corpus in corpora.items():
        arms = [arm for arm in plan.arms if arm.identity.digest == digest]
        most = max((epochs(arm, corpora) or 0.0 for arm in arms), default=0.0)
        if most > MANY_EPOCHS:
            size = f"{corpus.tokens.train:,} training tokens up to {most:.3g} times"
            yield f"repeated: runs read {size}; beyond about {MANY_EPOCHS}, repeated text teaches less than new text"
    if plan.study.train.objective == NextToken():
        for meta in corpora.values():
            yield meta.references.sentence
