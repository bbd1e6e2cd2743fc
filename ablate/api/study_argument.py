"""The `study` argument of public functions: clashes of names, and permission to run code that a study brings."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from ablate.machine.environment import user_folder
from ablate.study.complaints import Place, Problem, StudyError
from ablate.study.study import Study
from store import Store

StudyLike = str | Path | Mapping[str, object] | Study
"""A path, the name of a shipped study, a mapping with the keys of a study file, or a `Study`."""


class Sourced(Protocol):
    """A stored document of a study or a search: the text of its file, and the file."""

    @property
    def source(self) -> str: ...
    @property
    def path(self) -> str | None: ...


def refuse_namesake(study: Study, found: Sourced | None, store: Store) -> None:
    """Raise StudyError if `found`, the store's document under the name of `study`, belongs to another study.

    A file that was moved, copied unchanged or edited remains the same study. A study written in Python has no path: all
    such studies of one name are the same study.
    """
    if found is None or found.source == study.text or _same_place(found.path, study.path):
        return
    other = found.path or "one written in Python"
    reason = (
        f"the store {store.root} has the report of another study of this name, {other}: rename one of the two, or use"
        " another store"
    )
    raise StudyError([Problem(Place(study.written.place), "", reason)])


def _same_place(stored: str | None, path: Path | None) -> bool:
    if stored is None or path is None:
        return stored is None and path is None
    return not Path(stored).exists() or Path(stored).samefile(path)


# Permission to run the code that studies from elsewhere bring along.
#
# It is kept in the user's configuration, not in the store, which others may be able to write to.

RUNNABLE = (".py", ".pyc", ".pyd", ".so", ".zip", ".yaml", ".yml", ".json", ".jsonl", ".jinja", ".j2", ".txt")
"""Suffixes of the files that a task file can import, include, or use in its templates."""


def refuse_code(study: Study, allowed: bool) -> None:
    """Raise StudyError if a study names files that can run code, unless the user has allowed them.

    Permission is given once, and holds for these contents of the files and of all that they can import from their
    folders. lm-eval's task files run Python by `!function`, and can reach Python from their templates.
    """
    asked = study.evals.asked().values() if study.evals else ()
    files = [path for each in asked for path in each.code()]
    if not files:
        return
    contents = {path: dict(_contents(Path(path))) for path in files}
    digest = hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()
    mark = user_folder("XDG_CONFIG_HOME", ".config", "allowed") / digest
    if allowed:
        mark.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        mark.touch(mode=0o600)
    elif not (mark.is_file() and mark.stat().st_uid == os.geteuid()):
        reason = f"task files can run any code: read {', '.join(files)}, then allow them once with --allow-code"
        raise study.error("evals", reason)


def _contents(path: Path) -> Iterator[tuple[str, str]]:
    """(relative path, SHA-256) of the runnable files in a folder of tasks, or in a task file's folder, subfolders and
    links included."""
    top, seen = path if path.is_dir() else path.parent, set[str]()
    for folder, names, files in os.walk(top, followlinks=True):
        real = os.path.realpath(folder)
        names[:] = [] if real in seen else sorted(name for name in names if name != "__pycache__")
        seen.add(real)
        for file in (Path(folder, name) for name in sorted(files) if name.endswith(RUNNABLE)):
            if file.is_file():
                yield str(file.relative_to(top)), hashlib.sha256(file.read_bytes()).hexdigest()
