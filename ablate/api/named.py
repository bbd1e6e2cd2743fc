"""Find a study of a store by its name, file or folder."""

from __future__ import annotations

from pathlib import Path

from ablate.study.written import read_study, shipped
from store import Store, StoreError
from store.extensions import modules_of
from zoo.errors import did_you_mean


def study_name(study: str | Path) -> str:
    """The name of a study, from its name or its file."""
    return Path(study).stem if str(study).endswith((".yaml", ".yml")) else str(study)


def named_folder(study: str | Path, scale: str | None, root: str | Path) -> Path:
    """The folder of the one study or search in a store with this name, file or full name (`NAME-SCALE`).

    Raises StoreError.
    """
    store, name = Store(root), study_name(study)
    every = [(folder.path, found.name, found.scale) for folder in store.studies() if (found := folder.read())]
    every += [each for wing in modules_of(__name__) for each in wing.named(store)]
    named = [(path, of) for path, known, of in every if name in (known, f"{known}-{of}")]
    fitting = [path for path, of in named if scale in (None, of)]
    if len(fitting) == 1:
        return fitting[0]
    scales = ", ".join(dict.fromkeys(of for _, of in named))
    if len(fitting) > 1:
        raise StoreError(f"{name}: it was run at several scales in {root}/: give the scale, one of {scales}")
    if named:
        raise StoreError(f"{name}: it was not run at scale '{scale}' in {root}/, only at {scales}")
    if (reason := without_plan(name, store)) is not None:
        raise StoreError(f"{name}: it {reason}")
    near = did_you_mean(name, [known for _, known, _ in every])
    raise StoreError(f"{name}: there is no such study in {root}/{near or ' (see `ablate list`)'}")


def without_plan(name: str, store: Store) -> str | None:
    """Why a store has no plan of a study: `is in tuning, round 2, …`, `has not been run …`, with a command; None if
    there is no such study."""
    stages = {known: each.stage for each in store.tuning() for known in (each.name, f"{each.name}-{each.scale}")}
    if name in stages:
        command, reason, effect = "status", f"is in {stages[name]}, in", "shows how far"
    elif name in shipped():
        data = read_study(name).document.data
        compares = "search" not in data or "arms" in data
        command, reason, effect = f"{'run' if compares else 'search'} {name}", "has not been run in", "does that"
    else:
        return None
    return f"{reason} {store.root}/: `{' '.join(filter(None, ('ablate', command, store.option)))}` {effect}"
