"""What `ablate eval` prints of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator

from ablate.store.documents import EvalsDocument, JsonObject, Section


def rows(document: EvalsDocument) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for task, metrics in document.scores.items():
        for metric, score in metrics.items():
            numbers = (score.value, score.stderr, score.chance)
            found.append((task, metric, *("" if n is None else f"{n:.4f}" for n in numbers)))
    return found + [
        (*_missed(name, section, row), str(row["reason"]), "", "") for name, section, row in _refused(document)
    ]


def _refused(document: EvalsDocument) -> Iterator[tuple[str, Section, JsonObject]]:
    for name in ("positions", "recall", "diagnostics"):
        section = document.sections.get(name, Section(rows=()))
        yield from ((name, section, row) for row in section.rows if "reason" in row)


def _missed(name: str, section: Section, row: JsonObject) -> tuple[str, str]:
    """The task and the metric that a row with a reason has no score of."""
    if name != "diagnostics":
        return name, f"loss_{row['multiple']}x" + (f"_{row['extension']}" if row.get("extension") else "")
    level = row["level"] if isinstance(row["level"], dict) else {}
    return str(section.about["task"]), f"accuracy ({', '.join(f'{name} {value}' for name, value in level.items())})"


def samples(section: Section | None) -> Iterator[str]:
    """Each prompt, and what the model wrote after it."""
    for number, row in enumerate(section.rows if section else (), 1):
        if "reason" in row:
            yield f"samples: {row['reason']}\n"
        else:
            yield f"--- {number}: prompt\n{row['prompt']}\n--- {number}: sample\n{row['sample']}\n\n"
