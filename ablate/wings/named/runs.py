"""Find a run of a store by its digest, folder or name."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path

from ablate.api.named import without_plan
from ablate.data.tokenizers._encoder import EOS
from ablate.training.spec import TrainSpec
from ablate.training.trained import trained_tokenizer
from store import Store, StoreError
from store.documents import JsonObject, RunDocument, StudyDocument, TextMeta
from zoo.errors import SpecError, did_you_mean
from zoo.settings.axis import Spec
from zoo.settings.explain import checked
from zoo.settings.registry import changed
from zoo.spec import ModelSpec


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
        study = str(name).partition("/")[0]
        planned = {each.name for each in store.study_documents()}
        if study not in planned and (missing := without_plan(study, store)) is not None:
            raise StoreError(f"{name}: {study} {missing}")
        raise StoreError(f"{name}: {reason} in {store.root}/: give a digest, STUDY/ARM or STUDY/ARM/SEED")
    return store, found[0]


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


def find_run(name: str | Path, root: str | Path) -> tuple[Store, RunDocument]:
    """A finished run and its store. `name` is the run's folder, its digest or the beginning of one, its place in a
    study, or the name of an imported model. Raises StoreError."""
    imported = Store(root).read_import(str(name))
    store, digest = named_run(imported.run if imported else name, root, Store.runs)
    status, run = store.status(digest), store.read_run(digest)
    if status != "finished" or run is None:
        raise StoreError(f"{digest}: the run is {status}, so there is no model")
    # The run may need plug-ins that are missing or changed, or have settings that this version does not know.
    if lacking := ", ".join(changed(run.plugins or {})):
        raise StoreError(
            f"{run.digest}: trained with the plug-in {lacking}, which is missing here or has changed: give it with"
            " --plugin FILE (ablate.plug_in), or install its package"
        )
    path = store.run_path(run.digest)
    sections: list[tuple[str, type[Spec], JsonObject]] = [
        ("model", ModelSpec, run.model),
        ("train", TrainSpec, run.train),
    ]
    for section, model, data in sections:
        try:
            checked(model, data)
        except SpecError as error:
            raise StoreError(f"{path}: {section}.{error}: remove {path.parent} to train the run again") from error
    return store, run


def end_token(store: Store, run: RunDocument) -> int:
    """The end-of-document token of the run's corpus or, if that is gone, of our own tokenizers. Raises StoreError."""
    corpus = store.data(run.data.digest)
    if corpus.path.is_dir() and isinstance(meta := corpus.read(), TextMeta):
        return meta.eos
    found = trained_tokenizer(store, run.digest).token_to_id(EOS)
    if found is None:
        raise StoreError(
            f"{run.digest}: its corpus, which defines the end-of-document token, is no longer in the store"
        )
    return int(found)
