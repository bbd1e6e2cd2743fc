"""`ablate.register`: fix and hash a study's question and rules of judgement before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ablate.api.study_names import StudyLike, refuse_namesake
from ablate.machine.numerics import pick_device
from ablate.planning.registration import registration
from ablate.study.reading import load_study
from ablate.study.written import Sets
from store import Store, write_text
from store.documents import JsonObject
from store.documents.registered import hashed_text


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
