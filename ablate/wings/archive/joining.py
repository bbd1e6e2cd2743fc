"""Merging the runs, studies and ledgers of an unpacked archive into a store.

Everything is verified where it was unpacked before anything is written. The store's own content stays as it is: runs
with one digest are the same run, and an incoming one with other results is refused by name. The judgements of both are
merged into one ledger. Archives have no pages: they are rendered again.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, field
from math import isclose
from pathlib import Path

from safetensors import SafetensorError, safe_open

from ablate.wings.archive.archive_file import PackDocument
from ablate.wings.archive.file_checks import Check, run_folders
from store.documents import MergedRecord, ResultDocument, StudyDocument
from store.documents.claims import checksum_of
from store.files import StoreError, replacing, sync_tree
from store.folders import StudyFolder
from store.paths import NAME
from store.store import Store

DETERMINED = {
    *("status", "reason", "steps", "tokens", "loss", "bits_per_byte", "accuracy", "floor"),
    *("judging_loss", "judging_bits_per_byte", "judging_accuracy", "start_loss", "train_loss"),
    *("loss_spikes", "loss_spike_steps", "grad_norm"),
    *("parameters", "parameters_embedding", "flops_per_token", "flops"),
}
"""Fields of a result that follow from the run's digest. The others measure the machine and the moment."""

CELL = re.compile(rf"{NAME.pattern}(\+\w+=[^<>;&|`$\"\x00-\x1f\x7f-\x9f]*)?")
"""Names of arms, with the settings of a grid's cell: `post+lr=0.001+wd=0`. The first setting's text includes the rest:
a group for each would be tried in every combination, which a stranger's name can make endless."""


@dataclass
class Merge:
    """Outcome of a merge."""

    new: list[str] = field(default_factory=list)
    """Digests of runs that the store did not have."""
    known: list[str] = field(default_factory=list)
    """Digests of runs that the store had, with the same results."""
    completed: list[str] = field(default_factory=list)
    """Digests of known runs that got evaluations or a model that they lacked."""
    refused: dict[str, str] = field(default_factory=dict)
    """Digests of runs that were not merged, with the reason."""
    studies: list[StudyDocument] = field(default_factory=list)
    """Studies that the store did not have."""
    kept: list[StudyDocument] = field(default_factory=list)
    """Documents that were left out, since the store has another of the same study at the same scale."""
    judgements: dict[str, int] = field(default_factory=dict)
    """Number of judgements added to the ledger of each study."""


def verify(incoming: Store, manifest: PackDocument) -> None:
    """Raise StoreError if anything unpacked is damaged, incomplete, or contradicts its name or the manifest."""
    check = Check(incoming)
    for line in check.damages():
        raise StoreError(line.rpartition(": ")[0] or line)
    for kind in check.unchecked:
        raise StoreError(f"it contains {kind}")
    if set(run_folders(incoming)) != set(manifest.runs):
        raise StoreError("its runs differ from those in its manifest")
    for digest in manifest.runs:
        _verify_run(incoming, digest)
    for path in sorted(incoming.root.glob("studies/*")):
        _verify_study(incoming, StudyFolder(path))
    for path in sorted(incoming.root.glob("described/*")):
        if incoming.data(path.name).read().digest != path.name:
            raise StoreError(f"{path}: its digest does not match its folder name")


def _verify_run(incoming: Store, digest: str) -> None:
    run, result = incoming.read_run(digest), incoming.read_result(digest)
    if run is None or result is None:
        raise StoreError(f"{incoming.run_dir(digest)}: run.json or result.json is missing")
    losses = incoming.read_losses(digest)
    if result.loss is not None and losses:
        mean = sum(each.nats for each in losses) / sum(each.targets for each in losses)
        if not isclose(mean, result.loss, rel_tol=1e-6):
            raise StoreError(f"{incoming.result_path(digest)}: `loss` is not the mean of losses.ndjson")
    for path in incoming.model_dir(digest).glob("*.safetensors"):
        try:
            with safe_open(path, framework="np"):
                pass
        except SafetensorError as error:
            raise StoreError(f"{path} is not a safetensors file") from error


def _verify_study(incoming: Store, folder: StudyFolder) -> None:
    study, path = folder.read(), folder.document_path
    if study is None:
        raise StoreError(f"{path} is missing")
    if incoming.study(study.name, study.scale).path != folder.path:
        raise StoreError(f"{path}: its name and scale do not match its folder name")
    for record in folder.registrations.records():
        if checksum_of(record.content) != record.sha256:
            raise StoreError(f"{folder.registrations.path}: `sha256` does not match `content`")
    named = {
        "study": (study.name,),
        "scale": (study.scale, study.next_scale, study.forecast.scale if study.forecast else None),
        "arm": (arm.name for arm in study.arms),
        "factor": study.design.factors if study.design else (),
        "rung": (rung.name for rung in study.ladder),
    }
    for kind, names in named.items():
        pattern = CELL if kind == "arm" else NAME
        if wrong := next((name for name in names if name is not None and not pattern.fullmatch(name)), None):
            raise StoreError(f"{path}: {wrong!r} is no name of {'an' if kind == 'arm' else 'a'} {kind}")


def merge(incoming: Store, store: Store, manifest: PackDocument) -> Merge:
    """Move what is new into the store, runs first, so that a killed merge can be repeated."""
    found = Merge()
    records = incoming.merged()
    for digest in manifest.runs:
        _merge_run(incoming, store, records[digest], found)
    for path in sorted(incoming.root.glob("described/*")):
        target = store.data(path.name)
        if not target.is_known:
            move(path, target.described_path.parent)
    for name in incoming.ledgers():
        # Add the judgements that the store's ledger lacks; readers sort them by date.
        known = {record.model_dump_json() for record in store.read_ledger(name)}
        new = [record for record in incoming.read_ledger(name) if record.model_dump_json() not in known]
        if new:
            store.ledger(name).append(new)
            found.judgements[name] = len(new)
    for path in sorted(incoming.root.glob("studies/*")):
        _merge_study(StudyFolder(path), store, found)
    return found


def _merge_run(incoming: Store, store: Store, record: MergedRecord, found: Merge) -> None:
    digest = record.run
    source, target = incoming.run_dir(digest), store.run_dir(digest)
    ours, theirs = store.read_result(digest), incoming.read_result(digest)
    assert theirs is not None  # verified
    if ours is not None:
        if reason := _difference(ours, theirs):
            found.refused[digest] = reason
            return
        found.known.append(digest)
        added = _complete(source, target) if target.name == digest else []
        if added:
            found.completed.append(digest)
        if "model" in added:
            store.merged_log.append([record.model_copy(update={"finished": ours.finished})])
        return
    if target.exists() and any(target.iterdir()):
        found.refused[digest] = f"it is unfinished in this store: finish it, or remove {target}, and merge again"
        return
    store.merged_log.append([record])  # before the run, whose missing model it explains
    move(source, target)
    found.new.append(digest)


def _difference(ours: ResultDocument, theirs: ResultDocument) -> str:
    """A difference between two results of one digest, in words; empty if they agree."""
    here, there = (each.model_dump(include=DETERMINED) for each in (ours, theirs))
    differing = [name for name in here if here[name] != there[name]]
    if not differing:
        return ""
    shown = "loss" if "loss" in differing else differing[0]
    return f"its results differ from those in this store: {shown} {there[shown]}, here {here[shown]}"


def _complete(source: Path, target: Path) -> list[str]:
    """Add evaluations and the model that a run lacks, and return their names."""
    samples, scores = source.glob("evals-*.samples.ndjson"), source.glob("evals-*.json")
    # scores after the samples of which they hold the checksum
    theirs = [*sorted(samples), *sorted(scores), *source.glob("model")]
    missing = [path for path in theirs if not (target / path.name).exists()]
    for path in missing:
        move(path, target / path.name)
    return [path.name for path in missing]


def _merge_study(source: StudyFolder, store: Store, found: Merge) -> None:
    study = source.read()
    assert study is not None  # verified
    target = store.study(study.name, study.scale)
    ours = target.read()
    if ours is not None:
        if ours.run_digests != study.run_digests:
            found.kept.append(study)
        return
    for path in sorted((*source.path.glob("costs-*.json"), *source.path.glob("registered.ndjson"))):
        move(path, target.path / path.name)
    judged = source.read_judged() is not None
    target.write(study.portable)  # whatever the archive says: its author may have written it by hand
    if judged:
        store.keep_judged(study.name, study.scale)
    found.studies.append(study)


def move(source: Path, target: Path) -> None:
    """Move a file or a folder atomically to a free path."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        sync_tree(source)
        source.rename(target)  # fails if another process was quicker
        return
    with replacing(target) as temporary:
        shutil.move(source, temporary)
