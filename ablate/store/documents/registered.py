"""`studies/<name>-<scale>/registered.ndjson`: plans of a study that were registered, to be published before it runs."""

from __future__ import annotations

import hashlib
import json

from ablate.store.documents._document import JsonObject, Part


class RegistrationRecord(Part):
    """A registered plan. Lines are only ever added."""

    at: str
    """Time of the registration (ISO 8601), by the clock of the machine."""
    sha256: str
    """Checksum of `content` as JSON with sorted keys and without spaces: what is published."""
    content: JsonObject
    """Question, arms, claims, margin, seeds, budget, tuning, data, and the rules by which verdicts are made."""


class StudyRegistration(Part):
    """A registration of a study, and how the study that was run differs from it."""

    at: str
    """Time of the registration (ISO 8601)."""
    sha256: str
    """Checksum of what was registered."""
    changes: tuple[str, ...]
    """A line for each setting that has changed since: `margin: 0.02, now 0.05`."""


def hashed_text(content: JsonObject) -> str:
    """The text of which the checksum is."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def checksum_of(content: JsonObject) -> str:
    return hashlib.sha256(hashed_text(content).encode()).hexdigest()
