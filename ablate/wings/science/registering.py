"""`ablate.register`: every choice in a study that results could influence, as data to hash and compare.

A text is registered by its source and split, not its content, so that registering needs neither the text nor a network;
the content is part of the runs' digests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from ablate.api.study_argument import StudyLike, refuse_namesake
from ablate.machine.environment import project_version
from ablate.machine.numerics import pick_device
from ablate.readable import instant
from ablate.study.arms import Arm
from ablate.study.reading import load_study
from ablate.study.study import Study
from ablate.study.written import Sets
from ablate.wings.science.claim_spec import claims_of
from ablate.wings.science.stated import with_dates
from reports.judge.noise.power import ALPHA, FIRST_SHARE
from reports.judge.verdicts import looks
from store import Store, StudyFolder, write_text
from store.documents import JsonObject, RegistrationRecord, StudyDocument, StudyRegistration
from store.documents.claims import checksum_of, hashed_text
from zoo.settings.identity import identity_of

SECTIONS = {
    *("question", "baseline", "contrasts", "margin", "seeds", "budget", "tune", "grid", "factors", "design"),
    *("pilot", "data"),
}
"""Sections of a study that are registered as written; arms are registered with all their settings resolved."""
LONGEST = 60
"""Maximum number of characters of a value in a line of changes."""


def registered_content(study: Study) -> JsonObject:
    """The registered data of a study."""
    content = to_jsonable_python(study.sections.model_dump(include=SECTIONS))
    content["claims"] = to_jsonable_python(claims_of(study.sections, study.baseline))  # even if there are none
    auto = study.auto_seeds
    rules = {
        "version": project_version(),
        "error rate of all verdicts together": ALPHA,
        "share of the first judgement": FIRST_SHARE,
        "looks": to_jsonable_python(looks(auto.start, auto.cap) if auto else ()),
    }
    content |= {"name": study.name, "scale": study.scale, "rules": rules}
    content["arms"] = {arm.name: _arm(arm) for arm in study.arms}
    if study.smaller:
        content["ladder"] = {
            str(rung.rung): {"budget": to_jsonable_python(rung.budget), "arms": {a.name: _arm(a) for a in rung.arms}}
            for rung in study.smaller
        }
    found: JsonObject = json.loads(json.dumps(content, allow_nan=False))
    return found


def _arm(arm: Arm) -> JsonObject:
    made = {name: identity_of(part) for name, part in {"train": arm.train, "data": arm.data, **arm.given}.items()}
    return {"model": arm.model.identity(), **made, "seeds": to_jsonable_python(arm.seeds)}


def registration(study: Study, now: datetime | None = None) -> RegistrationRecord:
    """Register a study as it is now."""
    content = registered_content(study)
    return RegistrationRecord(at=instant(now), sha256=checksum_of(content), content=content)


def completed(
    document: StudyDocument,
    study: Study,
    folder: StudyFolder,
    before: StudyDocument | None,
    had_result: Callable[[str], bool],
) -> StudyDocument:
    """The document with the dates of its claims, its study's registrations, and the changes since each."""
    document, records = with_dates(document, before, had_result), folder.registrations.records()
    if not records:
        return document
    content = registered_content(study)
    found = (
        StudyRegistration(at=each.at, sha256=each.sha256, changes=tuple(changes(each.content, content)))
        for each in records
    )
    return document.model_copy(update={"registrations": tuple(found)})


def changes(before: JsonValue, now: JsonValue, path: str = "") -> Iterator[str]:
    """A line for each setting that differs."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in dict.fromkeys((*before, *now)):
            place = f"{path}.{name}" if path else name
            if name not in now:
                yield f"{place}: removed"
            elif name not in before:
                yield f"{place}: added"
            else:
                yield from changes(before[name], now[name], place)
    elif before != now:
        yield f"{path}: {_shown(before)}, now {_shown(now)}"


def _shown(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


@dataclass(frozen=True)
class Registration:
    """A registered plan of a study.

    Attributes:
        study, scale: name and scale of the study.
        at: time of registration (ISO 8601).
        sha256: the checksum to publish.
        content: the content that is hashed.
        path: the store's log of registrations.
        is_new: False if the same plan was registered before, at `at`.
        ended: number of the study's runs that have ended by now: a registration after them proves little.
    """

    study: str
    scale: str
    at: str
    sha256: str
    content: JsonObject
    path: Path
    is_new: bool
    ended: int

    def document(self) -> JsonObject:
        """The document that `ablate register --json` prints."""
        return {
            **{name: getattr(self, name) for name in ("study", "scale", "at", "sha256", "is_new", "ended", "content")},
            "path": str(self.path),
        }


def register(
    study: StudyLike,
    *,
    scale: str | None = None,
    sets: Sets = (),
    out: str | Path | None = None,
    store: str | Path = "runs",
) -> Registration:
    """Register a study: hash its question, arms, claims, margin, seeds, budget, tuning, data and rules, with a date.

    Publish the checksum anywhere: a commit, a post, a time-stamping service. Reports of the study then say whether it
    was registered before its first run, and what has changed since. Needs neither network nor text.

    Args:
        study, scale, sets, store: as in `ablate.run`; give the edits that the study will run with.
        out: a file for the text that was hashed, whose SHA-256 is the checksum.

    Returns:
        The checksum and its date.

    Raises:
        StudyError: the study cannot be read.

    Example:
        >>> ablate.register("norm_placement", scale="cpu").sha256
    """
    place = Store(store)
    chosen = load_study(study, scale, sets, device=pick_device())
    folder = place.study(chosen.name, chosen.scale)
    refuse_namesake(chosen, folder.read(), place)
    asked = registration(chosen)
    known = next((each for each in folder.registrations.records() if each.sha256 == asked.sha256), None)
    if known is None:
        folder.registrations.append([asked])
    if out is not None:
        write_text(Path(out), hashed_text(asked.content))
    record = known or asked
    document = folder.read()
    ended = sum(place.read_result(digest) is not None for digest in document.run_digests) if document else 0
    return Registration(
        study=chosen.name,
        scale=chosen.scale,
        at=record.at,
        sha256=record.sha256,
        content=record.content,
        path=folder.registrations.path,
        is_new=known is None,
        ended=ended,
    )
