"""Associative recall on text: the loss of tokens that complete a bigram seen before, by distance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import polars as pl

from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import Collected, over_seeds
from reports.judge.reading.documents import StudyDocuments
from reports.judge.statistics.estimates import estimate, score_half_width
from reports.page.evaluations import EvaluationSection
from reports.page.evaluations._recall_figure import RecallCurve, Targets, figure_of
from reports.page.figures.base import Figure
from reports.page.figures.drawing import ArmStyle
from store.documents import JsonObject, JsonScalar
from store.tables import Schema

PLACE = ["part", "first", "last"]


@dataclass(frozen=True)
class Recall(EvaluationSection):
    """Recall curves of the evaluated arms. The targets are the same for all: windows that some arm could not read are
    left out."""

    place: ClassVar[int] = 110
    schema: ClassVar[Schema] = {
        "multiple": pl.Int64,
        "context": pl.Int64,
        "length": pl.Int64,
        "frequent": pl.Int64,
        "reason": pl.String,
        "part": pl.String,
        "first": pl.Int64,
        "last": pl.Int64,
        "tokens": pl.Int64,
        "nats_per_token": pl.Float64,
        "stderr": pl.Float64,
        "bits_per_byte": pl.Float64,
    }
    """`part` is `distance` for hits from `first` to `last` tokens back, else the name of the set of targets."""
    loss_columns: ClassVar[tuple[str, ...]] = ("nats_per_token", "stderr")

    curves: tuple[RecallCurve, ...]

    @classmethod
    def collect(cls, documents: StudyDocuments) -> Mapping[str, pl.DataFrame]:
        """The frame without parts that have no target in the text."""
        (frame,) = super().collect(documents).values()
        return {cls.name(): frame.filter(pl.col("reason").is_not_null() | (pl.col("tokens") > 0))}

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        rows = data.frames[cls.name()]
        read = rows.drop_nulls("part").group_by("arm").agg(pl.col("multiple").unique())["multiple"].to_list()
        common = set.intersection(*map(set, read)) if read else set()
        chosen = rows.filter(pl.col("multiple") == max(common, default=0))
        curves = tuple(
            _curve(arm.name, asked, chosen, data.study.baseline)
            for arm in data.study.arms
            if (asked := rows.filter(arm=arm.name)).height
        )
        return cls(curves) if curves else None

    @classmethod
    def warnings(cls, data: Collected) -> Iterator[str]:
        """A warning if there are no recall hits: with few kinds of tokens, every bigram is frequent."""
        read = data.frames[cls.name()].drop_nulls("part")
        if read.height and read.filter(part="ar_hits").is_empty():
            most = read["frequent"][0]
            why = "no bigram is repeated within a window"
            if most is not None:
                why = (
                    f"every bigram repeated within a window occurs more than {most:,} times in the training text "
                    "(evals.recall.frequent)"
                )
            yield f"No held-out token is a recall hit: {why}."

    @classmethod
    def missed(cls, about: Mapping[str, JsonScalar], row: JsonObject) -> tuple[str, str]:
        return cls.name(), f"loss_{row['multiple']}x"

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        """One line per arm over the distances, with a point at its right for tokens whose bigram is new."""
        found = [curve for curve in self.curves if curve.hits]
        if found:
            yield figure_of(found, self.curves, summary, style)


def _curve(arm: str, asked: pl.DataFrame, chosen: pl.DataFrame, baseline: str) -> RecallCurve:
    own, base = chosen.filter(arm=arm), chosen.filter(arm=baseline) if arm != baseline else chosen[:0]
    found = tuple(_targets(own, base))
    refused = asked.drop_nulls("reason").select("multiple", "reason").unique(maintain_order=True)
    return RecallCurve(
        arm=arm,
        context=asked["context"][0],
        length=0 if own.is_empty() else own["length"][0],
        frequent=asked["frequent"][0],
        hits=tuple(each for each in found if each.part == "distance"),
        parts=tuple(each for each in found if each.part != "distance"),
        reasons=tuple((int(multiple), str(reason)) for multiple, reason in refused.iter_rows()),
    )


def _targets(own: pl.DataFrame, base: pl.DataFrame) -> Iterator[Targets]:
    """Targets with a loss for every seed: where a seed has none, the others' mean would be too favourable."""
    joined = own.join(
        base.select("seed", *PLACE, base="nats_per_token"), on=["seed", *PLACE], how="left", nulls_equal=True
    )
    ordered = joined.sort("part", "last", maintain_order=True)
    for (part, first, last), seeds in ordered.group_by(PLACE, maintain_order=True):
        losses = seeds["nats_per_token"]
        if losses.null_count():
            continue
        place: Any = last or 0
        bits, differences = seeds["bits_per_byte"], (losses - seeds["base"]).drop_nulls()
        yield Targets(
            part=str(part),
            first=None if first is None else int(str(first)),
            last=None if last is None else int(str(last)),
            tokens=seeds["tokens"][0],
            loss=over_seeds(place, losses.to_list()),
            difference=estimate(differences.to_list()),
            half_width=score_half_width(seeds["stderr"].to_list(), losses.to_list()),
            bits_per_byte=None if bits.null_count() else sum(bits) / len(bits),
        )
