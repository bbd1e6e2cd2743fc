"""The pages of the atlas. No page makes network requests."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from markupsafe import Markup

from ablate.wings.catalogue import model_table
from ablate.wings.catalogue.model_table import PublishedModel
from ablate.wings.results.document import NEAR, RecordedResult
from ablate.wings.science.cards import SAID, STANDINGS, Card, cards, conditions_of
from ablate.wings.science.counting_signs import beside, caveats, signs
from ablate.wings.science.figures import forest, ranked_result
from ablate.wings.science.handbook import Answer, Grade, HandbookClaim, Literature
from ablate.wings.science.sections.claims import MARKS
from ablate.wings.science.sources import ARXIV, CatalogueEntry, Sources, year_of
from ablate.wings.science.topics import SEVERAL, TOPICS, home
from reports.judge.sentences import prefixed_range
from reports.page.html.ranked import RING, SHAPES
from reports.page.html.templating import coded, render_plain, source

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


OWN = Path(__file__).parent / "templates"
STYLES = ("atlas.css",)
SHAPE_OF = {**MARKS, "measured": SHAPES["baseline"], **dict.fromkeys(("not run", "needs a GPU"), MARKS["not tested"])}
"""SVG path of a standing's mark; undecided ones have `RING`."""
ADDRESS = re.compile(r"https?://[^\s,;)<]+[^\s,;).<]")


def atlas_pages(
    results: Sequence[RecordedResult], sources: Sources, reports: Mapping[str, Path] | None = None
) -> dict[str, str]:
    """Text of every page by path. reports: paths of reports by result name, relative to the atlas's folder."""
    found = cards(results, sources.studies)
    variants = variant_pages(sources.catalogue, found, sources.models)
    known = {(page.entry.axis, page.entry.name): page.entry.slug for page in variants}
    sizes = [size for result in results for size in result.setting.parameters]
    shared: dict[str, object] = {
        "forest": forest,
        "cited": cited,
        "caveats": caveats,
        "signs": signs,
        "beside": beside,
        "near": f"{NEAR:g}",
        "labels": {study.name: study.labels for study in sources.studies},
        "shape": lambda standing: SHAPE_OF.get(standing, RING),
        "links": lambda card: [
            (name, known[axis, name]) for axis, name in sorted(variants_in(card.parts) & set(known))
        ],
        "entries": {entry.id: entry.claim for entry in sources.handbook},
        "reports": {name: Path(path).as_posix() for name, path in (reports or {}).items()},
    }
    inner = {**shared, "root": "../"}
    return {
        "index.html": _page(
            "index",
            source("atlas.js", OWN),
            shared,
            results=results,
            counts=counts(found),
            questions=sum(card.claim is None for card in found),
            said=lambda standing: SAID.get(standing, standing),
            outcomes=[each for each in STANDINGS if any(each == card.standing for card in found)],
            sizes=prefixed_range((min(sizes), max(sizes))) if sizes else "",
            answered=by_topic([card for card in found if card.results]),
            unanswered=by_study([card for card in found if not card.results]),
            topics=[topic for topic in TOPICS if any(topic in card.topics for card in found)],
            years=sorted({card.year for card in found if card.year}, reverse=True),
        ),
        "handbook.html": _page(
            "handbook",
            source("handbook.js", OWN),
            shared,
            rows=rows(sources.handbook, found),
            answers=answers(sources.handbook),
            choices=choices(sources.handbook),
            year=year_of,
        ),
        "variants.html": _page("variants", "", shared, axes=by_axis(variants)),
        **{f"variants/{page.entry.slug}.html": _page("variant", "", inner, page=page) for page in variants},
        "models.html": _page(
            "models",
            "",
            shared,
            columns=model_table.COLUMNS,
            models=model_table.oldest_first(sources.models),
            cell=model_table.cell,
        ),
        **{
            f"results/{result.name}.html": _page(
                "result",
                "",
                inner,
                result=result,
                figure=ranked_result(result),
                conditions=conditions_of(result),
                cards=[card for card in found if card.claim and result in card.results],
            )
            for result in results
        },
        "models.md": model_table.as_markdown(sources.models),
        "models.csv": model_table.as_csv(sources.models),
    }


FILTERS: Mapping[str, tuple[str, ...]] = {
    "standing": get_args(Literature),
    "grade": get_args(Grade),
    "answer": get_args(Answer),
}
"""Filters of the page, apart from words and topics, with all their values in order."""


@dataclass(frozen=True)
class HandbookRow:
    """A claim with the cards that refer to it."""

    entry: HandbookClaim
    cards: tuple[Card, ...]

    @property
    def unstated(self) -> tuple[str, ...]:
        """Studies that show it in their reports without stating it as a claim."""
        stating = {card.study for card in self.cards}
        return tuple(study for study in self.entry.studies if study not in stating)


def rows(handbook: Sequence[HandbookClaim], cards: Sequence[Card]) -> tuple[HandbookRow, ...]:
    stating: dict[str, list[Card]] = {}
    for card in cards:
        if card.entry:
            stating.setdefault(card.entry, []).append(card)
    return tuple(HandbookRow(entry, tuple(stating.get(entry.id, ()))) for entry in handbook)


def choices(handbook: Sequence[HandbookClaim]) -> dict[str, tuple[str, ...]]:
    """Values of each filter that occur among the claims."""
    found = {name: {getattr(entry, name) for entry in handbook} for name in FILTERS}
    used = {name: tuple(value for value in values if value in found[name]) for name, values in FILTERS.items()}
    return {"topic": tuple(dict.fromkeys(entry.topic for entry in handbook)), **used}


def answers(handbook: Sequence[HandbookClaim]) -> dict[str, int]:
    """Number of claims by the kind of test."""
    found = Counter(entry.answer for entry in handbook)
    return {answer: found[answer] for answer in get_args(Answer) if answer in found}


SETTLED = ("better", "worse", "no difference")
"""Verdicts that answer a question."""


@dataclass(frozen=True)
class StudyCards:
    """The cards of one study, its question first."""

    question: str
    cards: tuple[Card, ...]

    @property
    def study(self) -> str:
        return self.cards[0].study

    @property
    def counts(self) -> dict[str, int]:
        return counts(self.cards)

    @property
    def results(self) -> tuple[RecordedResult, ...]:
        return self.cards[0].results

    @property
    def is_open(self) -> bool:
        """Whether no result settles any arm."""
        return not any(arm.verdict in SETTLED for result in self.results for arm in result.arms)


def by_study(found: Iterable[Card]) -> list[StudyCards]:
    """Cards by the study that they are of, in alphabetical order of its name."""
    of: dict[str, list[Card]] = {}
    for card in found:
        of.setdefault(card.study, []).append(card)
    ordered = (sorted(own, key=lambda card: card.claim is not None) for _, own in sorted(of.items()))
    return [StudyCards(own[0].question, tuple(own)) for own in ordered]


def by_topic(found: Iterable[Card]) -> dict[str, list[StudyCards]]:
    """Studies by the topic that most of their cards have, those that settle nothing last."""
    groups: dict[str, list[StudyCards]] = {topic: [] for topic in (*TOPICS, SEVERAL)}
    for study in by_study(found):
        groups[home([card.topics for card in study.cards])].append(study)
    return {topic: sorted(studies, key=lambda study: study.is_open) for topic, studies in groups.items() if studies}


def counts(found: Iterable[Card]) -> dict[str, int]:
    """Number of claims by standing, in the order of `STANDINGS`."""
    known = Counter(card.standing for card in found if card.claim is not None)
    return {standing: known[standing] for standing in STANDINGS if known[standing]}


def _page(name: str, script: str, shared: Mapping[str, object], **context: Any) -> str:
    return render_plain(f"{name}.html.j2", STYLES, script, own=OWN, **{"root": "", **shared, "here": name, **context})


def cited(text: str) -> Markup:
    """Text with its URLs and arXiv identifiers as links, and what stands between backticks as code."""
    shown = ADDRESS.sub(r'<a rel="noreferrer" href="\g<0>">\g<0></a>', str(coded(text)))
    return Markup(ARXIV.sub(_link, shown))


def _link(found: re.Match[str]) -> str:
    identifier = found.group().removeprefix("arXiv:")
    return f'<a rel="noreferrer" href="https://arxiv.org/abs/{identifier}">{found.group()}</a>'


def report_paths(folder: Path, pages: Mapping[str, Path]) -> dict[str, Path]:
    """Reports by the name of their result, relative to the atlas's folder."""
    return {name: Path(os.path.relpath(page.resolve(), folder.resolve())) for name, page in pages.items()}
