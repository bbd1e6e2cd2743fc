"""`ablate.merge`: import another store's runs, studies and ledgers from an archive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ablate.planning.prospects import JudgedBefore
from ablate.readable import size_in_bytes
from ablate.wings.archive.joining import merge as merge_stores
from ablate.wings.archive.packing import unpacked
from store import Store
from store.documents import JsonObject, StudyDocument
from store.documents.shell import seeds_option


@dataclass(frozen=True)
class Merged:
    """Outcome of a merge.

    Attributes:
        archive: the file.
        sha256: its checksum.
        store: the folder of the store.
        new: digests of the runs that the store did not have.
        known: digests of the runs that the store had with the same results.
        completed: digests of known runs that gained evaluations or a model that they lacked.
        refused: digests of runs that were refused, with the reason, usually that the store has the run with other
            results. Nothing in the store is ever replaced.
        studies: the studies that the store did not have.
        kept: a line for each study that the store has with other runs: the store's own document stays.
        judgements: the number of judgements that are new to each study's ledger.
        machines: the number of new runs by device, platform and versions, for combinations that trained no earlier run
            here; empty if the store had no runs.
    """

    archive: Path
    sha256: str
    store: Path
    new: tuple[str, ...]
    known: tuple[str, ...]
    completed: tuple[str, ...]
    refused: Mapping[str, str]
    studies: tuple[str, ...]
    kept: tuple[str, ...]
    judgements: Mapping[str, int]
    machines: Mapping[str, int]

    def document(self) -> JsonObject:
        """The document that `ablate merge --json` prints."""
        return {
            "archive": str(self.archive),
            "sha256": self.sha256,
            "store": str(self.store),
            **{name: list(getattr(self, name)) for name in ("new", "known", "completed", "studies", "kept")},
            **{name: dict(getattr(self, name)) for name in ("refused", "judgements", "machines")},
        }

    def lines(self) -> Iterator[str]:
        """Lines for a terminal."""
        yield f"{self.archive}: {len(self.new)} new runs, {len(self.known)} already here with the same results"
        if self.completed:
            yield f"{len(self.completed)} runs already here gained evaluations or a model"
        for machine, count in self.machines.items():
            yield f"{count} of the new runs were trained in another environment: {machine}"
        for digest, reason in self.refused.items():
            yield f"refused: {digest}: {reason}"
        for name in self.studies:
            yield f"new study: {name}"
        yield from self.kept
        for name, count in self.judgements.items():
            plural = "s" * (count > 1)
            yield f"ledger of {name}: {count} more judgement{plural}; from now on, verdicts are corrected for them"


def merge(path: str | Path, *, store: str | Path = "runs", limit: str = "16GiB") -> Merged:
    """Import runs, studies and ledgers from an archive of `ablate.pack` into a store.

    The archive may come from anybody: it has no code and no pickles, and is verified before anything is written. A
    damaged or forged archive is refused as a whole. Checksums cannot tell whether its author's numbers are true.

    Args:
        path: the archive.
        store: the store's folder; created if it is missing.
        limit: the largest size that the archive may unpack to, such as `16GiB`.

    Returns:
        The new, known and refused runs, and changes of studies and ledgers.

    Raises:
        StoreError: the archive is refused; nothing is written.
        ArgumentError: `limit` is not a size.

    Example:
        >>> ablate.merge("norm_placement.zip", store="runs").new
    """
    place, source = Store(store), Path(path)
    beside = next(folder for folder in (place.root, *place.root.resolve().parents) if folder.is_dir())
    with unpacked(source, beside, int(size_in_bytes(limit, "limit"))) as incoming:
        machines = _machines(place, place.runs())
        found = merge_stores(incoming.store, place, incoming.manifest)
    new = _machines(place, found.new)
    return Merged(
        archive=source,
        sha256=incoming.sha256,
        store=place.root,
        new=tuple(found.new),
        known=tuple(found.known),
        completed=tuple(found.completed),
        refused=found.refused,
        studies=tuple(f"{study.name} at {study.scale}" for study in found.studies),
        kept=tuple(_kept(place, study) for study in found.kept),
        judgements=found.judgements,
        machines={machine: count for machine, count in new.items() if machines and machine not in machines},
    )


def _machines(store: Store, digests: Iterable[str]) -> dict[str, int]:
    """Number of runs by device, platform and versions of torch and ablate."""
    found: dict[str, int] = {}
    for digest in digests:
        if result := store.read_result(digest):
            by = result.environment
            # Words of the archive's author, who could write further lines of a report.
            machine = " ".join(f"{by.device}, {by.platform}, torch {by.torch}, ablate {by.ablate}".split())
            found[machine] = found.get(machine, 0) + 1
    return found


def _kept(store: Store, theirs: StudyDocument) -> str:
    """A line about a study that the store has with other runs, with the command that reports on the seeds of both."""
    ours = store.study(theirs.name, theirs.scale).read()
    assert ours is not None  # the store has the study
    name = f"{theirs.name} at {theirs.scale}"
    identities = [{arm.name: arm.identity for arm in study.arms} for study in (ours, theirs)]
    if identities[0] != identities[1]:
        return f"study {name}: the store's own study has different arms, and is kept; runs and judgements were added"
    seeds = sorted({run.seed for study in (ours, theirs) for arm in study.arms for run in arm.runs})
    command = ours.command(seeds_option(seeds), store.option)
    arms = []
    for arm in ours.arms:
        runs = {run.seed: run for run in (*arm.runs, *theirs.arm(arm.name).runs)}
        arms.append(arm.model_copy(update={"runs": tuple(runs.values())}))
    if not JudgedBefore.of(ours.model_copy(update={"arms": tuple(arms)}), store).repeats:
        return f"study {name}: yours is kept; nobody has judged these seeds, so all are judged together by: {command}"
    return (
        f"study {name}: yours is kept. Some of these seeds were judged already, so a report on all of them has "
        f"estimates and no verdict: {command}. For a verdict, judge fresh seeds from {max(seeds) + 1} on; labs that "
        "train with `--no-report` can judge all of theirs at once"
    )
