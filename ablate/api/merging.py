"""`ablate.merge`: another store's runs, studies and ledgers, taken over from an archive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ablate.api.packing import unpacked
from ablate.api.sizes import size_in_bytes
from ablate.store import Store
from ablate.store.documents import JsonObject, StudyDocument
from ablate.store.documents.shell import seeds_option
from ablate.store.merging import merge as merge_stores

LIMIT = "16GiB"


@dataclass(frozen=True)
class Merged:
    """Outcome of a merge.

    Attributes:
        archive: the file.
        sha256: its checksum.
        store: the folder of the store.
        new: digests of the runs that the store did not have.
        known: digests of those that it had, with the same results.
        completed: those among the known that got evaluations or a model that they lacked.
        refused: digests of runs that were not taken over, with the reason: above all runs that the store has with
            other results. Nothing of the store is ever replaced.
        studies: the studies that the store did not have.
        kept: a line for each study that the store has with other runs: its own document stays.
        judgements: how many judgements are new to the ledger of each study.
        machines: new runs by the processor and the versions that trained them, as far as those of no run here.
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
        """The same as `ablate merge --json` prints it."""
        return {
            "archive": str(self.archive),
            "sha256": self.sha256,
            "store": str(self.store),
            **{name: list(getattr(self, name)) for name in ("new", "known", "completed", "studies", "kept")},
            **{name: dict(getattr(self, name)) for name in ("refused", "judgements", "machines")},
        }

    def lines(self) -> Iterator[str]:
        """Lines for a terminal."""
        yield f"{self.archive}: {len(self.new)} new runs, {len(self.known)} with the same results here"
        if self.completed:
            yield f"{len(self.completed)} runs here got evaluations or a model that they lacked"
        for machine, count in self.machines.items():
            yield f"{count} of the new runs were trained elsewhere: {machine}"
        for digest, reason in self.refused.items():
            yield f"refused: {digest}: {reason}"
        for name in self.studies:
            yield f"new study: {name}"
        yield from self.kept
        for name, count in self.judgements.items():
            plural = "s" * (count > 1)
            yield f"ledger of {name}: {count} more judgement{plural}, for which verdicts are corrected from now on"


def merge(path: str | Path, *, store: str | Path = "runs", limit: str = LIMIT) -> Merged:
    """Take runs, studies and ledgers from an archive of `ablate.pack` over into a store.

    The archive may come from anybody: it has no code and no pickles, all of it is verified first, and one that is
    damaged or forged is refused as a whole. Its numbers are what its author says they are: no checksum can tell whether
    they are true.

    Args:
        path: the archive.
        store: the store's folder; created if it is missing.
        limit: the largest size that it may unpack to.

    Returns:
        The runs that are new, that were there, and that were refused; studies and ledgers.

    Raises:
        StoreError: the archive must not be used; nothing is written then.

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
    """Number of runs by what trained them."""
    found: dict[str, int] = {}
    for digest in digests:
        if result := store.read_result(digest):
            by = result.environment
            machine = f"{by.device}, {by.platform}, torch {by.torch}, ablate {by.ablate}"
            found[machine] = found.get(machine, 0) + 1
    return found


def _kept(store: Store, theirs: StudyDocument) -> str:
    """A line about a study that is here with other runs, with the command that reports on the seeds of both."""
    ours = store.study(theirs.name, theirs.scale).read()
    assert ours is not None  # it was kept
    name = f"{theirs.name} at {theirs.scale}"
    identities = [{arm.name: arm.identity for arm in study.arms} for study in (ours, theirs)]
    if identities[0] != identities[1]:
        return f"study {name}: its arms here are others, and stay; the runs and judgements are in the store"
    seeds = sorted({run.seed for study in (ours, theirs) for arm in study.arms for run in arm.runs})
    command = ours.command(seeds_option(seeds), store.option)
    return f"study {name}: yours stays; for the numbers of all seeds, without training: {command}"
