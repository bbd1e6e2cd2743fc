"""Aliases: find documents that an earlier version stored under other digests.

A stored run's document holds its full configuration, so today's digest can be computed from it. Folders and files keep
their names; the store records pairs of digests in `aliases.ndjson`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from ablate.data.spec import parse as parse_data
from ablate.data.synthetic import synthetic_digest
from ablate.planning.identity import beside_request, recomputed, request_digest, run_identity
from ablate.training.spec import TrainSpec
from evals.costs.spec import MeasureSpec
from evals.spec import EvalSpec
from store import Store, StoreError
from store.documents import JsonObject, RunDocument, SyntheticMeta
from zoo.errors import SpecError
from zoo.settings.axis import Spec
from zoo.settings.identity import DIGITS, digest_of, identity_of
from zoo.spec import ModelSpec, parse

FIRST_DIGITS = 16
"""Length of the first version's digests, which covered every default."""


class _UnreadableError(Exception):
    """A document has no equivalent today: this version cannot read it, or one of its sources is gone or has changed."""


def adopt(store: Store) -> None:
    """Record today's digests of the runs and requests that an earlier version stored, and of arms in its ledgers."""
    known = set(store.aliases.values())
    earlier = [digest for digest in store.runs(shorter_than=DIGITS) if digest not in known]
    if not earlier:
        return
    found: dict[str, str] = {}
    # Runs with results first: two stored runs, one with a default spelt out, may be one run today.
    for digest in sorted(earlier, key=lambda digest: not store.result_path(digest).exists()):
        for new, stored in _aliases(store, digest):
            if new not in store.aliases and not store.run_path(new).exists():
                found.setdefault(new, stored)
    if found:
        store.add_aliases(found)


def _aliases(store: Store, digest: str) -> Iterator[tuple[str, str]]:
    """(today's digest, stored digest) of a run, its arm, and its measurement and evaluation requests."""
    try:
        run, spec, train = _today(store, digest)
    except _UnreadableError:
        return
    yield run.digest, digest
    stored = store.read_run(digest)
    if stored is not None:  # always, since `_today` read it; narrows the type
        arm = stored.model_dump(by_alias=True, exclude_unset=True, exclude={"digest", "seed"})
        yield digest_of(run_identity(run, spec, train)), digest_of(arm, FIRST_DIGITS)
    measured = ((path, MeasureSpec, store.read_measure) for path in store.run_dir(digest).glob("measure-*.json"))
    evaluated = ((path, EvalSpec, store.read_evals) for path in store.run_dir(digest).glob("evals-*.json"))
    for path, shape, read in (*measured, *evaluated):
        name = path.stem.partition("-")[2]
        if len(name) < DIGITS and (document := read(digest, name)) is not None:
            yield from _request_alias(name, shape, document.request)


def _request_alias(name: str, shape: Any, request: JsonObject) -> Iterator[tuple[str, str]]:
    """The alias of a request; nothing if it or the files that it names have changed or compute something else now."""
    try:
        spec = shape.model_validate(request)
    except ValidationError:
        return
    if _is_first_version(spec) and digest_of({"schema": 1, **request, **beside_request(spec)}, FIRST_DIGITS) == name:
        yield request_digest(spec), name


def _today(store: Store, digest: str) -> tuple[RunDocument, ModelSpec, TrainSpec]:
    """A stored run with all its digests recomputed. Raises _UnreadableError."""
    try:
        run = store.read_run(digest)
        if run is None:
            raise _UnreadableError
        spec, train = parse(run.model), TrainSpec.model_validate(run.train)
        data = run.data.model_copy(update={"digest": _data_today(store, run.data.digest)})
    except (StoreError, SpecError, ValidationError) as error:
        raise _UnreadableError from error
    if not all(map(_is_first_version, (train, spec.block.norm, *spec.layers, spec))):
        raise _UnreadableError
    start = run.start and run.start.model_copy(update={"run": _source_today(store, run.start.run)})
    teacher = run.teacher and run.teacher.model_copy(update={"run": _source_today(store, run.teacher.run)})
    found = recomputed(run.model_copy(update={"data": data, "start": start, "teacher": teacher}), spec, train)
    return found, spec, train


def _is_first_version(spec: Spec) -> bool:
    """Whether a spec computes the same as when digests had 16 digits."""
    return bool(identity_of(spec) == identity_of(spec, versions=False))


def _source_today(store: Store, digest: str | None) -> str | None:
    return digest if digest is None or len(digest) >= DIGITS else _today(store, digest)[0].digest


def _data_today(store: Store, digest: str) -> str:
    """Today's digest of a corpus; that of a text corpus, even if removed, has not changed."""
    meta = store.data(digest).read() if store.data(digest).path.is_dir() else None
    if not isinstance(meta, SyntheticMeta):
        return digest
    source: Any = parse_data(meta.spec)
    return synthetic_digest(source, meta.content)


def adopt_times(store: Store, asked: Mapping[str, tuple[JsonObject, JsonObject]]) -> None:
    """Record today's digests of step times that an earlier version measured.

    asked: by today's digest, each question without first defaults, and with every default.
    """
    earlier = [digest for digest in store.calibrations() if len(digest) < DIGITS] if asked else []
    for stored in earlier:
        document = store.read_calibration(stored)
        if document is None:
            continue
        timed = {"model": document.model, "train": document.train, "numerics": document.numerics.model_dump()}
        for digest, (told, full) in asked.items():
            question = {**full, **timed, "workers": document.workers}
            is_of_here = digest_of({"schema": 1, **question}, FIRST_DIGITS) == stored
            if is_of_here and _is_same(question, full, told):
                store.add_aliases({digest: stored})


def _is_same(stored: Any, full: Any, told: Any) -> bool:
    """Whether `stored`, which has every default of its time, equals today's `full`. Settings newer than `stored` must
    have their first defaults, which `told` leaves out."""
    if isinstance(stored, dict) and isinstance(full, dict):
        said = told if isinstance(told, dict) else {}
        known = said.keys() <= stored.keys() <= full.keys()
        return known and all(_is_same(each, full[name], said.get(name)) for name, each in stored.items())
    if isinstance(stored, list) and isinstance(full, list) and len(stored) == len(full):
        return all(map(_is_same, stored, full, told if isinstance(told, list) else [None] * len(full)))
    return bool(stored == full)
