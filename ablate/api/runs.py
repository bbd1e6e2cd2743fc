"""Find a trained run by its folder, digest or name."""

from __future__ import annotations

from pathlib import Path

from ablate.api.named import named_run
from ablate.data.tokenizers._encoder import EOS
from ablate.training.spec import TrainSpec
from ablate.training.trained import trained_tokenizer
from store import Store, StoreError
from store.documents import JsonObject, RunDocument, TextMeta
from zoo.errors import SpecError
from zoo.settings.axis import Spec
from zoo.settings.explain import checked
from zoo.settings.registry import changed
from zoo.spec import ModelSpec


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
