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
    if tuned := [each for each in store.tuning() if name in (each.name, f"{each.name}-{each.scale}")]:
        raise StoreError(f"{name}: {root}/ has only its {tuned[0].stage}, so far: see `ablate status`")
    if name in shipped():
        raise StoreError(f"{name}: it has not been run in {root}/: {started_by(name, store)}")
    near = did_you_mean(name, [known for _, known, _ in every])
    raise StoreError(f"{name}: there is no such study in {root}/{near or ' (see `ablate list`)'}")


def started_by(name: str, store: Store) -> str:
    """Words on the command that runs a shipped study: `ablate search` if it compares no arms."""
    data = read_study(name).document.data
    command = "search" if "search" in data and "arms" not in data else "run"
    return f"`{' '.join(filter(None, ('ablate', command, name, store.option)))}` does that"
