"""Pages of variants: the claims about each, and the published models that have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ablate.wings.catalogue.model_table import PublishedModel
from ablate.wings.science.cards import Card
from ablate.wings.science.sources import CatalogueEntry

AXES = {
    "norm_placement": "residuals",
    "sparsity": "sparsities",
    "scaling": "positions.scalings",
    "position": "positions",
}
"""Axes of settings whose axis is not the setting's plural."""
NORMS = ("qk_norm", "v_norm", "embedding_norm")
"""Further settings whose values are norms."""
PLAIN = "parts"
"""The axis of parts that have settings but no variants."""


@dataclass(frozen=True)
class VariantPage:
    """A catalogue entry with its cards and models."""

    entry: CatalogueEntry
    cards: tuple[Card, ...]
    models: tuple[PublishedModel, ...]


def variant_pages(
    catalogue: Sequence[CatalogueEntry], cards: Sequence[Card], models: Sequence[PublishedModel]
) -> tuple[VariantPage, ...]:
    by_card = {card.key: variants_in(card.parts) for card in cards}
    by_model = {model.name: variants_in(model.parts) for model in models}
    return tuple(
        VariantPage(
            entry,
            tuple(card for card in cards if (entry.axis, entry.name) in by_card[card.key]),
            tuple(model for model in models if (entry.axis, entry.name) in by_model[model.name]),
        )
        for entry in catalogue
    )


def variants_in(parts: frozenset[str]) -> frozenset[tuple[str, str]]:
    """(axis, name) of parts: `mixer=mla` → (mixers, mla), `canon` → (parts, canon)."""
    found = set()
    for setting, _, kind in (part.partition("=") for part in parts):
        axis = "norms" if setting in NORMS else AXES.get(setting, f"{setting}s")
        found.add((axis, kind) if kind else (PLAIN, setting))
    return frozenset(found)


def by_axis(pages: Sequence[VariantPage]) -> Mapping[str, list[VariantPage]]:
    found: dict[str, list[VariantPage]] = {}
    for page in pages:
        found.setdefault(page.entry.axis, []).append(page)
    return found
