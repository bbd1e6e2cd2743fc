"""Imported models on the pages of a store: a table in the index, and a figure beside the arms that read the same text.

They saw other data and spent other budgets, so they get no verdict and are compared only in absolute numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from markupsafe import Markup

from ablate.wings.serve.site import StorePages
from ablate.wings.serve.trade_offs import Group, Studied
from reports.judge.sentences import listed
from reports.judge.statistics.estimates import Estimate, single
from reports.page.figures.base import Figure, Switch, SwitchOption, optional, short
from reports.page.figures.drawing import PALETTE, Drawing, blank, label
from reports.page.html.templating import environment
from reports.page.sections._plane import MOST_NAMED, WIDE, label_places
from reports.page.wording import words
from reports.page.wording.table import Columns, Table
from store import Store, StoreError
from store.documents import ImportDocument, MeasureDocument, ResultDocument, RunDocument, Score, TextMeta
from store.documents.study import UNJUDGED

Text = tuple[str, float | None, int | None]
"""Properties that two losses per byte must share to be comparable: the documents, and the fraction or number of them
that is held out."""


@dataclass(frozen=True)
class ImportedModel:
    """An imported model, its run, and all its scores by task and metric. `text` is None if the corpus is gone."""

    document: ImportDocument
    run: RunDocument
    result: ResultDocument
    measured: MeasureDocument | None
    scores: Mapping[tuple[str, str], Score]
    source: str
    text: Text | None


def read_imports(store: Store) -> tuple[list[ImportedModel], list[str]]:
    """The imported models of a store in alphabetical order, and the errors of those that cannot be shown."""
    models, errors = [], []
    for name in store.imports():
        try:
            models.append(_read(store, name))
        except (StoreError, OSError) as error:
            errors.append(f"{name}: {error}")
    return models, errors


def source_of(store: Store, corpus: str) -> tuple[str, Text | None]:
    """The data source of a corpus, and its text, independent of its tokenizer; None for a synthetic task or a missing
    corpus."""
    meta = store.data(corpus).read() if store.data(corpus).path.is_dir() else None
    source = str(meta.spec["source"]) if meta else f"data {corpus[:8]}"
    text = (meta.content_read, meta.split.fraction, meta.split.given) if isinstance(meta, TextMeta) else None
    return source, text


def _read(store: Store, name: str) -> ImportedModel:
    document = store.read_import(name)
    run = store.read_run(document.run) if document else None
    result = store.read_result(document.run) if document else None
    if document is None or run is None or result is None:
        raise StoreError("its run is gone: import the model again")
    measured = store.read_measure(run.digest, document.measure) if document.measure else None
    scores = {  # the newest evaluation wins if several have the same score
        (task, metric): score
        for evaluated in store.all_evals(run.digest)
        for task, metrics in evaluated.scores.items()
        for metric, score in metrics.items()
        if score.value is not None
    }
    return ImportedModel(document, run, result, measured, scores, *source_of(store, run.data.digest))


COSTS = ("parameters", "KV cache, bytes per token", "decoding, ms per token")
HERE, ELSEWHERE = ("circle", PALETTE[0]), ("star-diamond", PALETTE[1])
"""Marker and colour of arms trained here, and of imported models."""
MARGIN, LEAST_ROOM = 0.22, 0.1
"""Space for names at either end of an axis, as a share of the range of its points; and the space if that range
is zero."""
Range: TypeAlias = tuple[float, float]


class ImportsShown(StorePages):
    """Imported models, beside the studies of a store."""

    def section(self, store: Store) -> Markup:
        models, errors = read_imports(store)
        if not models and not errors:
            return Markup()
        template = environment(Path(__file__).parent).get_template("imports.html.j2")
        return Markup(template.render(imported=imports_table(models), scores=scores_table(models), errors=errors))

    def groups(self, store: Store, studies: Sequence[Studied]) -> Iterator[Group]:
        """One group per text that an imported model read, including the arms of studies on the same text."""
        by: dict[Text, list[ImportedModel]] = {}
        for model in read_imports(store)[0]:
            if model.text is not None and model.result.bits_per_byte is not None:
                by.setdefault(model.text, []).append(model)
        for number, (text, found) in enumerate(by.items()):
            arms = [point for studied in studies for point in _arms(store, studied, text)]
            points, source = [*arms, *map(_imported, found)], found[0].source
            names = dict.fromkeys(point.name.partition(":")[0] for point in arms)
            beside = f", beside {listed(list(names))}" if names else ""
            links = [point.link for point in points]
            yield Group(f"Imported models, text: {source}", f"Imported{beside}", _figure(number, points, source), links)


SHOWN = ImportsShown()


@dataclass(frozen=True)
class ModelPoint:
    """A model in the figure: bits per byte, and costs in the order of `COSTS`, None if unknown."""

    name: str
    link: str
    imported: bool
    bits: Estimate
    costs: tuple[float | None, ...]

    @property
    def kind(self) -> str:
        return "imported" if self.imported else "trained here"


def imports_table(models: Sequence[ImportedModel]) -> Table:
    """One row per model."""
    columns: Columns[ImportedModel] = {
        "model": lambda model: model.document.name,
        "text": lambda model: model.source,
        "parameters": lambda model: words.count(model.result.parameters),
        "context": lambda model: str(model.run.train["context"]),
        "loss (nats/token)": lambda model: words.fixed(model.result.loss, 3),
        "bits/byte": lambda model: words.fixed(model.result.bits_per_byte, 3),
        "KV bytes/token": lambda model: words.whole(model.measured.kv_bytes_per_token if model.measured else None),
        "decoding tokens/s": lambda model: words.whole(model.measured.decoding_speed if model.measured else None),
    }
    return Table.of(models, columns, labels=2)


def scores_table(models: Sequence[ImportedModel]) -> Table:
    """One row per score of each model."""
    rows = (
        (model.document.name, task, metric, optional(each.value), optional(each.stderr))
        for model in models
        for (task, metric), each in model.scores.items()
    )
    return Table(("model", "task", "metric", "value", "± standard error"), tuple(rows), labels=3)


def _imported(model: ImportedModel) -> ModelPoint:
    bits = float(model.result.bits_per_byte or 0.0)
    measured = model.measured
    speed = measured.decoding_speed if measured else None
    costs = (model.result.parameters, measured.kv_bytes_per_token if measured else None, speed and 1000 / speed)
    return ModelPoint(model.document.name, "index.html#imported-models", True, single(bits), costs)


def _arms(store: Store, studied: Studied, text: Text) -> Iterator[ModelPoint]:
    summary = studied.summary
    if summary.study.scale in UNJUDGED:
        return
    corpora: Mapping[str, str] = {arm.name: arm.data for arm in summary.study.arms}
    known = {digest: source_of(store, digest)[1] for digest in set(corpora.values())}
    for arm in summary.arms:
        if arm.bits_per_byte is not None and known[corpora[arm.name]] == text:
            name = f"{summary.study.name}: {arm.name}"
            speed = arm.means.get("decode_tokens_per_second")
            costs = (arm.planned.parameters, arm.planned.kv_bytes_per_token, 1000 / speed.mean if speed else None)
            yield ModelPoint(name, studied.link, False, arm.bits_per_byte, costs)


def _figure(number: int, points: Sequence[ModelPoint], source: str) -> Figure:
    axes = [place for place in range(len(COSTS)) if any(point.costs[place] for point in points)]
    imported = sum(point.imported for point in points)
    trained = len(points) - imported
    beside = f" beside {trained} arms trained here" if trained else ""
    what = f"{imported} imported model{'s' if imported != 1 else ''}{beside}"
    up = _range([point.bits.mean + side * (point.bits.half_width or 0.0) for point in points for side in (-1, 1)])
    options = tuple(_option(place, points, up) for place in axes)
    rows = []
    for point in points:
        parameters, cache, decoding = point.costs
        costs = words.count(parameters), words.whole(cache), words.NONE if decoding is None else f"{decoding:.3g}"
        rows.append((point.name, point.kind, words.plus_minus(point.bits), *costs))
    return Figure(
        key=f"imports-{number}",
        title=f"{what}: bits per byte on the same text ({source})",
        note="Imported models were trained on other data with other budgets: they are shown in absolute numbers and "
        "get no verdict. Losses are of the same held-out documents, each model with its own tokenizer and context. "
        "Bars are 95 % intervals over seeds; imported models, shown as stars, have none.",
        alt="; ".join(f"{point.name}: {words.plus_minus(point.bits)}" for point in points),
        drawing=_drawing(points, options[0], up),
        table=Table(("model", "kind", "bits/byte", *COSTS), tuple(rows), labels=2),
        switches=(Switch("x", "cost", options),),
        wide=True,
    )


def _option(place: int, points: Sequence[ModelPoint], up: Range) -> SwitchOption:
    values = [point.costs[place] for point in points]
    across = _range([math.log10(value) for value in values if value])
    at = [
        (_share(math.log10(value) if value else across[0], across), _share(point.bits.mean, up))
        for point, value in zip(points, values, strict=True)
    ]
    named = [name if value else "" for name, value in zip(_names(points), values, strict=True)]
    return SwitchOption(
        COSTS[place],
        {"x": [[short(value) if value else None] for value in values], "textposition": label_places(at, named, WIDE)},
        {
            "xaxis.title.text": f"{COSTS[place]} · better ←",
            "xaxis.type": "log",
            "xaxis.range": [short(end) for end in across],
        },
    )


def _names(points: Sequence[ModelPoint]) -> list[str]:
    """Labels beside the points: all names if there are few points, else only those of imported models."""
    few = len(points) <= MOST_NAMED
    return [label(point.name, 40) if point.imported or few else "" for point in points]


def _drawing(points: Sequence[ModelPoint], first: SwitchOption, up: Range) -> Drawing:
    figure = blank("", "bits per byte · better ↓", 520)
    at = zip(first.traces["x"], first.traces["textposition"], strict=True)
    for point, name, (x, place) in zip(points, _names(points), at, strict=True):
        symbol, colour = ELSEWHERE if point.imported else HERE
        reach = point.bits.half_width or 0.0
        figure.add_scatter(
            x=x,
            y=[short(point.bits.mean)],
            name=label(point.name, 40),
            text=[name],
            textposition=place,
            cliponaxis=False,
            mode="markers+text",
            marker={"symbol": symbol, "color": colour, "size": 12},
            error_y={"type": "data", "array": [short(reach)], "color": colour},
            hovertext=[f"<b>{label(point.name, 60)}</b><br>{point.kind}<br>{words.plus_minus(point.bits)} bits/byte"],
            hoverinfo="text",
        )
    figure.update_layout(first.layout)
    figure.update_layout(showlegend=False, margin={"t": 16}, yaxis={"range": [short(end) for end in up]})
    return figure


def _range(values: Sequence[float]) -> Range:
    """Range of an axis with room for names beside the outermost points."""
    low, high = min(values), max(values)
    room = MARGIN * (high - low) or LEAST_ROOM
    return low - room, high + room


def _share(value: float, axis: Range) -> float:
    return (value - axis[0]) / (axis[1] - axis[0])
