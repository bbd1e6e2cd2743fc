"""`ablate.open` and `ablate.logs`: browse the runs, studies and searches of a store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from ablate.running.worker import DONE
from ablate.wings.browse.history import RULES, Rule, history
from store import Store, StoreError
from store.documents import JsonObject, StudyDocument
from store.errors import ArgumentError
from store.extensions import modules_of
from store.files import check_regular
from zoo.errors import did_you_mean

if TYPE_CHECKING:
    import zoo
    from ablate.api.result import StudyResult

QUESTIONS = {
    "name": pl.String,
    "scale": pl.String,
    "question": pl.String,
    "created": pl.String,
    "baseline": pl.String,
    "arms": pl.Int64,
    "runs": pl.Int64,
    "ended": pl.Int64,
}
SEARCHES = {
    "name": pl.String,
    "scale": pl.String,
    "question": pl.String,
    "created": pl.String,
    "trials": pl.Int64,
    "best": pl.Int64,
}
RUNS = {
    "digest": pl.String,
    "status": pl.String,
    "seed": pl.Int64,
    **dict.fromkeys(("loss", "bits_per_byte", "accuracy", "tokens_per_second"), pl.Float64),
    **dict.fromkeys(("parameters", "steps", "tokens"), pl.Int64),
    **dict.fromkeys(("flops", "train_seconds", "peak_memory_bytes"), pl.Float64),
    "finished": pl.String,
}


class Runs:
    """A store of runs, studies and searches, to browse. Every query reads the store again."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    def studies(self) -> pl.DataFrame:
        """A row for each study: name, scale, question, number of arms and runs, and how many runs have ended."""
        return pl.DataFrame(map(self._study_row, self.store.study_documents()), schema=QUESTIONS)

    @property
    def searches(self) -> pl.DataFrame:
        """A row for each search: name, scale, question, and number of trials and of those best or on the front."""
        rows = [row for wing in modules_of("ablate.open") for row in wing.search_rows(self.store)]
        return pl.DataFrame(rows, schema=SEARCHES)

    @property
    def runs(self) -> pl.DataFrame:
        """A row for each run: digest, status, seed, losses, accuracy, speed, size, budget, time and peak memory."""
        return pl.DataFrame(map(self._run_row, self.store.runs()), schema=RUNS)

    def result(self, name: str, scale: str | None = None) -> StudyResult:
        """A study's result, as `ablate.run` returned it.

        Args:
            name: the study's name.
            scale: needed if the store has the study at several scales.

        Raises:
            ArgumentError: the store has no such study, or several of that name.
            ReportError: its runs must not be compared.

        Example:
            >>> ablate.open("runs").result("norm_placement").contrasts
        """
        from ablate.api.result import StudyResult  # noqa: PLC0415 (a ledger needs no figures)

        known = [(document.name, document.scale) for document in self.store.study_documents()]
        scales = [found for other, found in known if other == name]
        if not scales:
            raise ArgumentError(
                "name", f"there is no study '{name}' in {self.store.root}/" + did_you_mean(name, dict(known))
            )
        scale = scales[0] if scale is None and len(scales) == 1 else scale
        if scale not in scales:
            raise ArgumentError("scale", f"choose one of the study's scales in the store: {', '.join(scales)}")
        return StudyResult.stored(self.store.study(name, scale).path)

    def ledger(self, name: str, fdr: Rule | None = None) -> pl.DataFrame:
        """A row for every comparison ever judged for a study's question, oldest first.

        Args:
            name: the study's name.
            fdr: None corrects p-values so that at most 5 % of questions have any error. `lord` or `saffron` (Javanmard
                and Montanari 2018, arXiv:1603.09000; Ramdas et al. 2018, arXiv:1802.09098) decide one comparison at a
                time, so that at most 5 % of the significant ones are expected to be wrong: for open-ended campaigns.

        Raises:
            ArgumentError: there is no such rule.
            StoreError: the store has no comparison of such a study.

        Example:
            >>> ablate.open("runs").ledger("norm_placement")
        """
        if fdr not in (None, *RULES):
            raise ArgumentError("fdr", f"expected one of {', '.join(RULES)}, or None", fdr)
        others = [self.store.read_ledger(other) for other in self.store.ledgers() if other != name]
        found = history(self.store.read_ledger(name), fdr, others)
        if found.is_empty():
            raise StoreError(f"{self.store.root}/: no comparison of a study '{name}' has been judged")
        return found

    def model(self, run: str) -> zoo.Decoder:
        """Load the trained model of a run on the CPU. `run` is a digest or its beginning, or a place in a study
        (`my_study/swiglu`).

        Raises:
            StoreError: there is no such run, it has not finished, or it is damaged.

        Example:
            >>> runs = ablate.open("runs")
            >>> runs.model(runs.runs["digest"][0]).spec
        """
        from ablate.training.trained import trained_model  # noqa: PLC0415 (as above)
        from ablate.wings.named.runs import find_run  # noqa: PLC0415 (only a model needs torch)

        store, found = find_run(run, self.store.root)
        model: zoo.Decoder = trained_model(store, found.digest).eval()
        return model

    def _study_row(self, document: StudyDocument) -> JsonObject:
        digests = [run.digest for arm in document.arms for run in arm.runs]
        return {
            **document.model_dump(include={"name", "scale", "question", "created", "baseline"}),
            "arms": len(document.arms),
            "runs": len(digests),
            "ended": sum(self.store.status(digest) in ("finished", "diverged") for digest in digests),
        }

    def _run_row(self, digest: str) -> JsonObject:
        run, result = self.store.read_run(digest), self.store.read_result(digest)
        known = result.model_dump(include=set(RUNS)) if result else {}
        speed = result.training_speed if result else None
        seed, status = run.seed if run else None, self.store.status(digest)
        return {**known, "digest": digest, "status": status, "seed": seed, "tokens_per_second": speed}

    def __repr__(self) -> str:
        studies, runs = len(self.store.studies()), len(self.store.runs())
        return f"<Runs {self.store.root}/: {studies} studies, {runs} runs>"

    def _repr_html_(self) -> str:
        return self.studies._repr_html_()


def open(store: str | Path = "runs") -> Runs:
    """Open a store to browse its runs, studies and searches.

    Args:
        store: the folder of runs.

    Returns:
        An object with the store's studies, searches and runs as frames, the result of each study, and each run's model.

    Raises:
        StoreError: there is no such folder.

    Example:
        >>> runs = ablate.open("runs")
        >>> runs.studies.select("name", "scale", "arms", "ended")
    """
    if not Path(store).is_dir():
        raise StoreError(f"{store} is not a folder")
    return Runs(Store(store))


LOOK_SECONDS = 0.2


def logs(run: str | Path, *, store: str | Path = "runs", follow: bool = False) -> Iterator[str]:
    """Read the log of a run, whatever the engine: what was done, when and where, with warnings and tracebacks.

    Args:
        run: the digest of a run in the store, or the beginning of one, or its place in a study (`my_study/swiglu`, for
            the first seed; `my_study/swiglu/2`), or its folder.
        store: the store's folder; not needed if `run` is a folder.
        follow: keep yielding new lines until the run is done.

    Returns:
        The log's lines, without line ends.

    Raises:
        StoreError: there is no such run, or no worker has started on it.

    Example:
        >>> print(*ablate.logs("3f2a"), sep="\\n")
    """
    from ablate.wings.named.runs import named_run  # noqa: PLC0415 (loads torch)

    place, digest = named_run(run, store, Store.logged)
    return _lines(place.log_path(digest), follow)


def _lines(path: Path, follow: bool) -> Iterator[str]:
    rest, over = "", False
    check_regular(path)
    with path.open(encoding="utf-8", errors="replace") as log:
        while True:
            *lines, rest = (rest + log.read()).split("\n")
            yield from lines
            over = lines[-1].endswith(f" {DONE}") if lines else over
            if over or not follow:
                break
            time.sleep(LOOK_SECONDS)
    if rest:
        yield rest
