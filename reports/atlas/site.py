"""The pages of the atlas, and writing them. No page asks the network for anything."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from markupsafe import Markup, escape

from ablate.store.documents.handbook import Answer, Grade, HandbookClaim, Literature
from reports.atlas import models as model_table
from reports.atlas.cards import STANDINGS, Card, cards, conditions_of, paired
from reports.atlas.forest import forest
from reports.atlas.sources import ARXIV, CatalogueEntry, PublishedModel, Sources, year_of
from reports.atlas.topics import TOPICS
from reports.pages.ranked import RING, SHAPES, Ranked, RankedRow
from reports.pages.ranking import differs, said_alike
from reports.pages.templating import render_plain, source
from reports.reading.outcomes import FAILED
from reports.results.document import RecordedInterval, RecordedResult
from reports.sections._costs import Cost
from reports.sections.claims import MARKS
from reports.sections.trade_off import rank
from reports.statistics.estimates import NO_DIFFERENCE, SAME_RATIO, Estimate
from reports.wording.arm_names import brief
from reports.wording.words import interval, plus_minus

STYLES = ("atlas/atlas.css",)
SHAPE_OF = {**MARKS, "measured": SHAPES["baseline"]}
"""Outline of the mark of a standing; a ring for what is open."""
ADDRESS = re.compile(r"https?://[^\s,;)<]+[^\s,;).<]")


def atlas_pages(
    results: Sequence[RecordedResult], sources: Sources, reports: Mapping[str, Path] | None = None
) -> dict[str, str]:
    """Text of every page by its path. reports: pages of results by name, as seen from the atlas's folder."""
    found = cards(results, sources.studies)
    variants = variant_pages(sources.catalogue, found, sources.models)
    known = {(page.entry.axis, page.entry.name): page.entry.slug for page in variants}
    shared: dict[str, object] = {
        "forest": forest,
        "cited": cited,
        "shape": lambda standing: SHAPE_OF.get(standing, RING),
        "links": lambda card: [
            (name, known[axis, name]) for axis, name in sorted(variants_in(card.parts) & set(known))
        ],
        "entries": {entry.id for entry in sources.handbook},
        "reports": {name: Path(path).as_posix() for name, path in (reports or {}).items()},
    }
    inner = {**shared, "root": "../"}
    return {
        "index.html": _page(
            "index",
            source("atlas/atlas.js"),
            shared,
            cards=found,
            results=results,
            counts=counts(found),
            topics=[topic for topic in TOPICS if any(topic in card.topics for card in found)],
            years=sorted({card.year for card in found if card.year}, reverse=True),
        ),
        "handbook.html": _page(
            "handbook",
            source("atlas/handbook.js"),
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
        **{f"results/{result.name}.html": _result(result, found, inner) for result in results},
        "models.md": model_table.as_markdown(sources.models),
        "models.csv": model_table.as_csv(sources.models),
    }


def counts(found: Iterable[Card]) -> dict[str, int]:
    """Number of cards by standing, in the order of `STANDINGS`."""
    known = Counter(card.standing for card in found)
    return {standing: known[standing] for standing in STANDINGS if known[standing]}


def _result(result: RecordedResult, found: Iterable[Card], shared: Mapping[str, object]) -> str:
    return _page(
        "result",
        "",
        shared,
        result=result,
        figure=ranked_result(result),
        conditions=conditions_of(result),
        cards=[card for card in found if card.claim and result in card.results],
    )


def _page(name: str, script: str, shared: Mapping[str, object], **context: Any) -> str:
    return render_plain(f"atlas/{name}.html.j2", STYLES, script, **{"root": "", **shared, "here": name, **context})


def cited(text: str) -> Markup:
    """Text with links to arXiv and to the addresses in it, which are opened only on request."""
    shown = ADDRESS.sub(r'<a rel="noreferrer" href="\g<0>">\g<0></a>', str(escape(text)))
    return Markup(ARXIV.sub(_link, shown))


def _link(found: re.Match[str]) -> str:
    identifier = found.group().removeprefix("arXiv:")
    return f'<a rel="noreferrer" href="https://arxiv.org/abs/{identifier}">{found.group()}</a>'


def report_paths(folder: Path, pages: Mapping[str, Path]) -> dict[str, Path]:
    """Reports by the name of their result, as seen from the atlas's folder."""
    return {name: Path(os.path.relpath(page.resolve(), folder.resolve())) for name, page in pages.items()}


FILTERS: Mapping[str, tuple[str, ...]] = {
    "standing": get_args(Literature),
    "grade": get_args(Grade),
    "answer": get_args(Answer),
}
"""Filters of the page, beside words and topics, with every value in its order."""


@dataclass(frozen=True)
class HandbookRow:
    """A claim with what the atlas knows of it."""

    entry: HandbookClaim
    cards: tuple[Card, ...]

    @property
    def unstated(self) -> tuple[str, ...]:
        """Studies that show it in their reports and do not state it as a claim."""
        stating = {card.study for card in self.cards}
        return tuple(study for study in self.entry.studies if study not in stating)


def rows(handbook: Sequence[HandbookClaim], cards: Sequence[Card]) -> tuple[HandbookRow, ...]:
    stating: dict[str, list[Card]] = {}
    for card in cards:
        if card.entry:
            stating.setdefault(card.entry, []).append(card)
    return tuple(HandbookRow(entry, tuple(stating.get(entry.id, ()))) for entry in handbook)


def choices(handbook: Sequence[HandbookClaim]) -> dict[str, tuple[str, ...]]:
    """Values of each filter that some claim has."""
    found = {name: {getattr(entry, name) for entry in handbook} for name in FILTERS}
    used = {name: tuple(value for value in values if value in found[name]) for name, values in FILTERS.items()}
    return {"topic": tuple(dict.fromkeys(entry.topic for entry in handbook)), **used}


def answers(handbook: Sequence[HandbookClaim]) -> dict[str, int]:
    """Number of claims by what tests them."""
    found = Counter(entry.answer for entry in handbook)
    return {answer: found[answer] for answer in get_args(Answer) if answer in found}


MOST_COLUMNS = 5
DECLARED = ("kv-", "parameters", "flops-per-token")
"""Beginnings of the keys of costs that follow from the architecture."""


def ranked_result(result: RecordedResult) -> Ranked:
    """The figure. A design, whose arms are compared with nothing, has a row for each effect."""
    labels = {key: cost.label for arm in result.arms for key, cost in arm.costs.items()}
    costs = []
    for key, label in labels.items():
        known = {arm.name: arm.costs[key] for arm in result.arms if key in arm.costs}
        ratios = {name: Estimate(cost.ratio, cost.low, cost.high, None, ()) for name, cost in known.items()}
        costs.append(Cost(key, label, ratios, declared=key.startswith(DECLARED)))
    costs.sort(key=rank)
    columns = [cost for cost in costs if differs(cost)][:MOST_COLUMNS]
    found = [(each, _estimate(each.difference, ()) if each.difference else None) for each in result.effects]
    effects = [RankedRow(each.name, each.name, "", each.verdict, of, _said(of), "", {}) for each, of in found]
    rows = effects or list(_arms(result, costs))
    rows.sort(key=lambda row: (row.difference is None, row.difference.mean if row.difference else 0.0))
    alike = said_alike([cost for cost in costs if cost not in columns])
    return Ranked(tuple(rows), tuple(columns), alike, result.baseline, result.unit, bool(result.effects))


def _arms(result: RecordedResult, costs: Sequence[Cost]) -> Iterator[RankedRow]:
    names = brief([arm.name for arm in result.arms])
    for arm in result.arms:
        is_base = arm.name == result.baseline
        difference = None if arm.verdict in FAILED else arm.difference
        found = None if difference is None else _estimate(difference, paired(result, arm))
        loss = "" if arm.loss is None else plus_minus(_estimate(arm.loss, ()))
        failed = len(arm.stalled) + len(arm.diverged)
        yield RankedRow(
            name=arm.name,
            label=names[arm.name],
            gloss="",
            verdict=arm.verdict,
            difference=NO_DIFFERENCE if is_base else found,
            said=loss if is_base else _said(found),
            note=f"{failed} of {failed + len(arm.seeds)} seeds did not train" if failed else "",
            costs={
                cost.key: SAME_RATIO if is_base else cost.ratios[arm.name]
                for cost in costs
                if is_base or arm.name in cost.ratios
            },
        )


def _estimate(found: RecordedInterval, values: tuple[float, ...]) -> Estimate:
    """With the ends that the file leaves out as infinite."""
    if found.low is None and found.high is None:
        return Estimate(found.mean, None, None, None, values)
    low, high = (-math.inf if found.low is None else found.low), (math.inf if found.high is None else found.high)
    return Estimate(found.mean, low, high, None, values)


def _said(found: Estimate | None) -> str:
    return "" if found is None else interval(found).removesuffix(" nats")


AXES = {
    "norm_placement": "residuals",
    "sparsity": "sparsities",
    "scaling": "positions.scalings",
    "position": "positions",
}
"""Axis of a setting, where it is not the setting's plural."""
NORMS = ("qk_norm", "v_norm", "embedding_norm")
"""Further settings that take a norm."""
PLAIN = "parts"
"""The axis of parts that have settings and no variants."""


@dataclass(frozen=True)
class VariantPage:
    """An entry of the catalogue with everything that bears on it."""

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
    named = (part.partition("=") for part in parts)
    return frozenset((_axis(setting), kind) if kind else (PLAIN, setting) for setting, _, kind in named)


def _axis(setting: str) -> str:
    if setting in NORMS:
        return "norms"
    return AXES.get(setting, f"{setting}s")


def by_axis(pages: Sequence[VariantPage]) -> Mapping[str, list[VariantPage]]:
    found: dict[str, list[VariantPage]] = {}
    for page in pages:
        found.setdefault(page.entry.axis, []).append(page)
    return found
