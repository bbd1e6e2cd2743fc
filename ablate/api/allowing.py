"""Studies from elsewhere that would run code."""

from __future__ import annotations

import hashlib
import json

from ablate.store import Store
from ablate.study.study import Study


def refuse_code(study: Study, store: Store, allowed: bool) -> None:
    """Raise StudyError where a study names files that can run code, until it is allowed once for their contents.

    lm-eval's task files run Python by `!function`, and reach it from their templates.
    """
    asked = study.evals.asked().values() if study.evals else ()
    files = [path for each in asked for path in each.code()]
    if not files:
        return
    contents = json.dumps([files, [each.content() for each in asked]])
    mark = store.allowed_path(hashlib.sha256(contents.encode()).hexdigest())
    if allowed:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    elif not mark.exists():
        reason = f"task files can run any code. Read {', '.join(files)}; then allow it, once, with --allow-code"
        raise study.error("evals", reason)
