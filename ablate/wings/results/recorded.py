"""Reading recorded results (`ablate report --record`), and what they say of a study that is planned."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from ablate.study.written import RESULTS, results_beside
from ablate.wings.results.document import RecordedResult
from reports.judge.sentences import prefixed_range
from store import StoreError, jsonfile
from store.errors import ReportError
from store.files import read_regular

if TYPE_CHECKING:
    from ablate.planning.plan import ArmPlan
    from ablate.planning.prospects import LikelyStanding
    from ablate.study.study import Study


def read(path: Path) -> RecordedResult:
    """Read a recorded result. Raises ReportError with file, field and expected value if it is invalid."""
    try:
        remedy = "write it again: ablate report PATH --record"
        return jsonfile.record(read_regular(path), RecordedResult, str(path), remedy)
    except StoreError as error:
        raise ReportError(str(error)) from error
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror}") from error


def size_of(result: RecordedResult) -> str:
    """`56 k parameters, 5 seeds, baseline between bigrams and trigrams`."""
    stands = f", baseline {result.standing}" if result.standing else ""
    return f"{prefixed_range(result.setting.parameters)} parameters, {result.setting.seeds} seeds{stands}"


def size_and_length(parameters: tuple[float, float], tokens: tuple[float, float]) -> str:
    """`56 k parameters · 9.9 to 10 tokens per parameter`, from (smallest, largest) pairs."""
    return f"{prefixed_range(parameters)} parameters · {prefixed_range(tokens)} tokens per parameter"


class Recorded(TypedDict):
    """An answer, the scale and size (`56 k parameters, 5 seeds`) that it holds for, and the date of the record."""

    answer: str
    scale: str
    size: str
    recorded: str


def recorded(study: Path | None) -> list[Recorded]:
    """Recorded answers of a study, one for each scale, from `results` beside its file.

    Raises:
        ReportError: a file of such a name is not a recorded result.
    """
    paths = results_beside(study).glob(f"{study.stem}@*.json") if study else ()
    return [
        {"answer": each.answer, "scale": each.scale, "size": size_of(each), "recorded": each.recorded}
        for each in map(read, sorted(paths, key=lambda path: path.stem))
    ]


def sentence(found: Recorded) -> str:
    """`pre is best: … (recorded 2026-11-25 at cpu: 56 k parameters, 5 seeds)`."""
    return f"{found['answer']} (recorded {found['recorded']} at {found['scale']}: {found['size']})"


def plan_json(study: Study) -> dict[str, list[Recorded]]:
    """Fields of `ablate plan --json`."""
    return {"recorded": recorded(study.path)}


def remarks(study: Study) -> Iterator[str]:
    """Remarks below a plan's table."""
    yield from (f"known: {sentence(each)}" for each in recorded(study.path))


def standings(base: ArmPlan) -> Iterator[LikelyStanding]:
    """Baselines of the shipped results on text of the same source, under as many tokens and at the same context."""
    from ablate.planning.prospects import LikelyStanding  # noqa: PLC0415 (loads torch)

    for result in map(read, sorted(RESULTS.glob("*@*.json"))):
        setting, loss = result.setting, result.losses.get(result.baseline)
        alike = (setting.data, setting.vocabularies, setting.context) == (
            base.data.source,
            (base.identity.vocab_size,),
            base.train.context,
        )
        if alike and loss is not None and result.references is not None:
            size = math.sqrt(math.prod(setting.parameters))
            source = f"{result.baseline} of {result.name}"
            yield LikelyStanding.of(source, round(size), result.references.tokens, loss, result.references)
