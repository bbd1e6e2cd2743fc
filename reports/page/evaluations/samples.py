"""Samples: continuations that models write for the same prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import polars as pl

from reports.judge.reading.collected import Collected
from reports.page.evaluations import EvaluationSection
from store.documents import Section as Stored
from store.tables import Schema


@dataclass(frozen=True)
class Prompt:
    """A prompt, its continuation in the held-out text, and each arm's continuation: (arm, text)."""

    prompt: str
    held_out: str
    written: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Samples(EvaluationSection):
    """Samples of the first seed that all arms with samples share. `reasons` say which arms have none, and why."""

    place: ClassVar[int] = 170
    title: ClassVar[str] = "Samples"
    template: ClassVar[str] = "samples.html.j2"
    schema: ClassVar[Schema] = {
        "temperature": pl.Float64,
        "prompt": pl.String,
        "held_out": pl.String,
        "sample": pl.String,
        "reason": pl.String,
    }

    seed: int | None
    temperature: float
    prompts: tuple[Prompt, ...]
    reasons: tuple[tuple[str, str], ...]

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        rows = data.frames[cls.name()]
        if rows.is_empty():
            return None
        written = rows.drop_nulls("sample")
        having = [set(seeds) for seeds in written.group_by("arm").agg("seed")["seed"]]
        seeds = set.intersection(*having) if having else set()  # seeds that all arms have; the first is shown
        written = written.filter(pl.col("seed") == min(seeds)) if seeds else written[:0]
        by_arm = [written.filter(arm=arm).iter_rows(named=True) for arm in written["arm"].unique(maintain_order=True)]
        prompts = []  # only prompts that are the same for all arms are shown side by side
        for texts in zip(*by_arm, strict=False):
            prompt = texts[0]["prompt"]
            if all(text["prompt"] == prompt for text in texts):
                samples = tuple((text["arm"], text["sample"]) for text in texts)
                prompts.append(Prompt(prompt, texts[0]["held_out"], samples))
        reasons = list(rows.drop_nulls("reason").select("arm", "reason").unique(maintain_order=True).iter_rows())
        if written.height and not prompts:
            reasons.append(("samples", "the arms' prompts differ"))
        temperature = written["temperature"][0] if written.height else 0.0
        return cls(min(seeds, default=None), temperature, tuple(prompts), tuple(reasons))

    @classmethod
    def printed(cls, table: Stored) -> str:
        """Each prompt and the model's continuation."""
        return "".join(
            f"--- {number}: prompt\n{row['prompt']}\n--- {number}: sample\n{row['sample']}\n\n"
            for number, row in enumerate(table.rows, 1)
            if "reason" not in row
        )
