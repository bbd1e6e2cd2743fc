"""Reading the handbook of claims.

Every file of `studies/claims` is a topic. A claim of a study may refer to an entry by its id.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import ValidationError

from ablate.study.complaints import Problem, StudyError, complaints
from ablate.study.written import SHIPPED
from ablate.study.yamlfile import YamlDocument, read_yaml
from ablate.wings.science.handbook_claim import HandbookClaim
from zoo.vocabulary import says

FOLDER = SHIPPED / "claims"


@cache
def handbook() -> Mapping[str, HandbookClaim]:
    """Every entry by its id, topic by topic. Raises StudyError for a damaged file."""
    entries: dict[str, HandbookClaim] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        document = read_yaml(path)
        for name in document.data:
            if name in entries:
                where = f"given twice (also in {entries[name].topic})"
                raise StudyError([Problem(document.keys[(name,)], name, where)])
            entries[name] = _entry(name, path, document)
    return entries


def _entry(name: str, path: Path, document: YamlDocument) -> HandbookClaim:
    data = {"id": name, "topic": path.stem.replace("_", " "), **document.data[name]}
    try:
        return HandbookClaim.model_validate(data)
    except ValidationError as error:
        found = complaints(error, data, HandbookClaim)
        at = document.keys[(name,)]
        raise StudyError(
            Problem(document.values.get((name, *keys), at), ".".join((name, *keys)), reason, kind)
            for keys, reason, kind in found
        ) from error


def claims(*words: str) -> tuple[HandbookClaim, ...]:
    """Claims of the handbook, with their sources, their standing in the literature and their tests here.

    Args:
        words: words or phrases, such as "rope" and "must tie": together one phrase, or else a claim must contain them
            all; or one claim's id; none for all claims.

    Returns:
        The matching claims, sorted by topic; empty if there are none.

    Raises:
        StudyError: a file of the handbook is damaged.

    Example:
        >>> [claim.commands for claim in ablate.claims("norm-center")]
        [('ablate run norm_kind',)]
    """
    if len(words) == 1 and words[0] in handbook():
        return (handbook()[words[0]],)
    texts = {entry: _text(entry) for entry in handbook().values()}
    together = tuple(entry for entry, text in texts.items() if says(text, " ".join(words)))
    return together or tuple(entry for entry, text in texts.items() if all(says(text, phrase) for phrase in words))


@cache
def _text(entry: HandbookClaim) -> str:
    """Text of an entry, with words for its standing and its test: `tested by nothing`."""
    said = entry.model_dump(exclude_defaults=True).values()
    return " ".join((*map(str, said), entry.standing, f"tested by {entry.answer}"))
