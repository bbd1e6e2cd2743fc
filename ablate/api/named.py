"""Find a run or a study of a store by its digest, folder or name."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path

from store import Store, StoreError
from store.documents import SearchDocument, StudyDocument
from zoo.errors import did_you_mean


def named_run(name: str | Path, root: str | Path, known: Callable[[Store], Sequence[str]]) -> tuple[Store, str]:
    """The store and digest of the one run among `known` that `name` identifies: its folder, its digest or the beginning
    of one, or its place in a study (`my_study/swiglu`, `my_study-cpu/swiglu/2`). Raises StoreError, or PermissionError
    if only unreadable folders match."""
    folder, start = Path(name).resolve(), str(name)
    if folder.name in known(Store(folder.parent)):
        return Store(folder.parent), folder.name
    store = Store(root)
    start = _placed(store, start) or start
    here = known(store)
    found = [digest for digest in here if digest.startswith(start)]
    if not found and (closed := [path for path in store.closed() if path.name.startswith(start)]):
        raise PermissionError(errno.EACCES, "Permission denied", str(closed[0]))
    if len(found) != 1:
        reason = f"{len(found)} runs match: {', '.join(found)}" if found else "there is no such run"
        raise StoreError(f"{name}: {reason} in {store.root}/: give a digest, STUDY/ARM or STUDY/ARM/SEED")
    return store, found[0]


def study_name(study: str | Path) -> str:
    """The name of a study, from its name or its file."""
    return Path(study).stem if str(study).endswith((".yaml", ".yml")) else str(study)


def named_folder(study: str | Path, scale: str | None, root: str | Path) -> Path:
    """The folder of the one study or search in a store with this name, file or full name (`NAME-SCALE`).

    Raises StoreError.
    """
    store, name = Store(root), study_name(study)
    every: list[tuple[Path, StudyDocument | SearchDocument]] = []
    every += [(folder.path, found) for folder in store.studies() if (found := folder.read())]
    every += [(folder.path, search) for folder in store.searches() if (search := folder.read())]
    named = [(path, each) for path, each in every if name in (each.name, f"{each.name}-{each.scale}")]
    fitting = [path for path, each in named if scale in (None, each.scale)]
    if len(fitting) == 1:
        return fitting[0]
    scales = ", ".join(dict.fromkeys(each.scale for _, each in named))
    if len(fitting) > 1:
        raise StoreError(f"{name}: it was run at several scales in {root}/: give the scale, one of {scales}")
    if named:
        raise StoreError(f"{name}: it was not run at scale '{scale}' in {root}/, only at {scales}")
    near = did_you_mean(name, [each.name for _, each in every])
    raise StoreError(f"{name}: there is no such study in {root}/{near or ' (see `ablate list`)'}")


def _placed(store: Store, place: str) -> str | None:
    """The digest of the run at STUDY/ARM/SEED, or of the first seed at STUDY/ARM. None if there is no such study.
    Raises StoreError if it was run at several scales, or lacks the arm or seed."""
    study_name, _, rest = place.partition("/")
    known = store.study_documents() if rest else ()
    studies = [study for study in known if study_name in (study.name, _full_name(study))]
    if not studies:
        return None
    if len(studies) > 1:
        raise StoreError(
            f"{place}: the study was run at several scales: name one, {', '.join(map(_full_name, studies))}"
        )
    study, (arm_name, _, seed) = studies[0], rest.partition("/")
    runs = {arm.name: {str(run.seed): run.digest for run in arm.runs} for arm in study.arms}
    if arm_name not in runs:
        raise StoreError(f"{place}: {_full_name(study)} has no arm '{arm_name}'{did_you_mean(arm_name, runs)}")
    seeds = runs[arm_name]
    chosen = seed or next(iter(seeds), "0")
    if chosen not in seeds:
        raise StoreError(f"{place}: no run of {arm_name} has the seed {chosen}, only {', '.join(seeds) or 'none'}")
    return seeds[chosen]


def _full_name(study: StudyDocument) -> str:
    return f"{study.name}-{study.scale}"
