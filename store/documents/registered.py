"""`studies/<name>-<scale>/registered.ndjson`: registered plans of a study, for publication before it runs."""

from __future__ import annotations

import hashlib
import json

from store.documents._document import JsonObject, Part, Time


class RegistrationRecord(Part):
    """A registered plan. Append-only."""

    at: Time
    """Time of the registration (ISO 8601), by the clock of the machine."""
    sha256: str
    """Checksum of `content` as JSON with sorted keys and without spaces: the number to publish."""
    content: JsonObject
    """Question, arms, claims, margin, seeds, budget, tuning, data, and the rules for verdicts."""


class StudyRegistration(Part):
    """A registration of a study, and the differences of the study from it."""

    at: Time
    """Time of the registration (ISO 8601)."""
    sha256: str
    """Checksum of the registered plan."""
    changes: tuple[str, ...]
    """A line for each setting that has changed since: `margin: 0.02, now 0.05`."""


def hashed_text(content: JsonObject) -> str:
    """Canonical JSON of a plan: the text that is hashed."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def checksum_of(content: JsonObject) -> str:
    return hashlib.sha256(hashed_text(content).encode()).hexdigest()
