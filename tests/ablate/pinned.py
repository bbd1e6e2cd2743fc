"""Digests of everything that ships, and the values that digests leave out, as `pinned.json` has them.

python -m tests.ablate.pinned          writes the file, after a decision that digests change or are added
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import ablate
import evals
import zoo
from ablate.data import DataIdentity
from ablate.data.identity import MadeSource, split_of
from ablate.data.sources import DataSource, TextSource
from ablate.planning.make_plan import make_plan
from ablate.planning.study_document import study_arm
from ablate.study.reading import load_study
from ablate.study.scales import scale_names
from ablate.study.study import Study, StudyError
from ablate.study.yamlfile import read_yaml
from ablate.wings.plugins.plugin_files import AFTER_FILE, FOLDERS
from ablate.wings.search.search_document import search_digest
from ablate.wings.search.trial_runner import StudyTrialRunner
from store import Store
from store.documents import (
    RunData,
    RunDocument,
    RunNumerics,
    RunProbes,
    RunStart,
    RunTeacher,
    TextSplit,
)
from zoo.presets import sized_names
from zoo.settings.axis import Spec, Variant, variants
from zoo.settings.identity import digest_of, first_default, identity_of

FILE = Path(__file__).with_name("pinned.json")
STUDIES = Path(__file__).parents[2] / "studies"
DOCUMENTS = (RunDocument, RunData, RunNumerics, RunProbes, RunStart, RunTeacher, TextSplit)
"""Stored documents that digests cover, beside specs."""


def digests(only: str | None = None) -> dict[str, str]:
    """Digests by study and scale, preset, or variant. only: this scale of each study; None for all that it has."""
    return {**dict(_of_studies(only)), **dict(_of_presets()), **dict(_of_variants())}


def _of_studies(only: str | None) -> Iterator[tuple[str, str]]:
    for path in sorted(STUDIES.glob("*.yaml")):
        for scale in [only] if only else scale_names(read_yaml(path)):
            try:
                found = digest_of(list(_of_study(load_study(path, scale))))
            except StudyError:  # models of one size at every rung, or that cannot read the scale's context
                found = "refused"
            yield f"{path.stem}@{scale}", found


def _of_study(study: Study) -> Iterator[str]:
    """Digests of a study's search, runs, arms and requests, on a CPU."""
    if study.search is not None:
        yield search_digest(StudyTrialRunner(study, _planned, Store("none"), lambda plan, run: None))  # type: ignore[arg-type,return-value]
    for plan in map(_planned, (*study.smaller, study)):
        yield from (run.digest for run in plan.runs)
        yield from (study_arm(arm).identity for arm in plan.arms if arm.runs)
        yield from (digest for digest in (plan.measure_digest, plan.evals_digest) if digest is not None)


def _planned(study: Study) -> Any:
    return make_plan(study, matmul="highest", identify=_identity)


def _identity(source: DataSource) -> DataIdentity:
    """A text is what its settings say: files of the standard library differ between versions of Python."""
    if isinstance(source, MadeSource):
        return source.identify()
    assert isinstance(source, TextSource)
    tokenizer, split = source.tokenizer, split_of(source, Path(), 0)
    digest = digest_of({"tokenizer": tokenizer.identity(Path()), "split": identity_of(split)})
    return DataIdentity(digest, tokenizer.vocabulary(Path()), "")


def _of_presets() -> Iterator[tuple[str, str]]:
    for name in sized_names():
        yield f"preset {name}", zoo.load(name).digest


def _of_variants() -> Iterator[tuple[str, str]]:
    """Yield the digest of each variant at each of its example settings."""
    for axis in FOLDERS:
        tag = "source" if axis == "ablate.data.sources" else "kind"
        for name, cls in variants(axis, tag).items() if axis not in UNTAGGED else ():
            examples = cls.examples if issubclass(cls, Variant) else ({},)
            for number, example in enumerate(examples):
                if not _needs(cls) - example.keys():
                    yield f"{axis} {name} {number}", digest_of(identity_of(cls.model_validate({tag: name, **example})))


UNTAGGED = (*AFTER_FILE, "ablate.training.probes", "ablate.tracking", "ablate.running.engines")
"""Folders whose members are no variants of an axis."""


def _needs(cls: type[Spec]) -> set[str]:
    return {name for name, field in cls.model_fields.items() if field.is_required()}


def first_defaults() -> dict[str, dict[str, Any]]:
    """First defaults, which digests leave out, by class and setting."""
    shipped = set[str]()
    for package in (zoo, evals, ablate):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                shipped.add(importlib.import_module(module.name).__name__)
    documents = {f"{cls.__module__}.{cls.__name__}": cls for cls in DOCUMENTS}
    # a class that plug-ins extend comes before what they make of it, which has its name
    found = documents | dict(reversed(list(_named(Spec, shipped))))
    return {name: _of_class(cls) for name, cls in sorted(found.items())}


def _named(cls: type[Spec], shipped: Collection[str]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Specs of what ships: a plug-in's stand in modules of the same packages."""
    for each in cls.__subclasses__():
        if each.__module__ in shipped:
            yield f"{each.__module__}.{each.__name__}", each
        yield from _named(each, shipped)


def _of_class(cls: type[BaseModel]) -> dict[str, Any]:
    """Required settings have none."""
    found = {name: first_default(field) for name, field in cls.model_fields.items() if not field.exclude}
    return {name: "required" if value is ... else {"first": identity_of(value)} for name, value in found.items()}


if __name__ == "__main__":
    pinned = {"digests": digests(), "first defaults": first_defaults()}
    FILE.write_text(json.dumps(pinned, indent=1, sort_keys=True) + "\n", encoding="utf-8")
