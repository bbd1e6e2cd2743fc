"""The order in which runs begin, where another command works on some of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from ablate.running.engines import Event
from ablate.running.engines._polling import Polling
from ablate.running.engines.inprocess import InProcess
from ablate.running.request import Request
from ablate.training.stop import StopSignal
from store import Store
from store.claims import PLACE
from store.documents.run import ClaimRecord
from tests.ablate.conftest import identity_of


class Done:
    """A run that has ended when it is first looked at."""

    def __init__(self, request: Request) -> None:
        self.request = request

    def ended(self) -> Event:
        return Event("finished", self.request.digest)

    def ask_to_end(self) -> None: ...


class OneWorker(Polling):
    at_once = 1
    poll_seconds = 0.0

    def start(self, requests: Sequence[Request]) -> Sequence[Done]:
        return [Done(request) for request in requests]


@pytest.fixture
def requests(tmp_path: Path) -> list[Request]:
    return [Request(store=str(tmp_path), corpus=str(tmp_path), identity=identity_of(seed=seed)) for seed in range(4)]


def begun(requests: Sequence[Request | None]) -> list[int]:
    """Seeds, as their runs began."""
    seeds = {request.digest: request.identity.seed for request in requests if request is not None}
    events = OneWorker().run(iter(requests))
    return [seeds[event.digest] for event in events if event is not None and event.kind == "started"]


def test_runs_of_another_command_come_last(requests: list[Request]) -> None:
    store = Store(requests[0].store)
    assert begun(requests) == [0, 1, 2, 3]
    with store.claim(requests[0].digest), store.claim(requests[2].digest):
        assert begun(requests) == [1, 3, 0, 2]
        assert begun([requests[0], requests[1], None, requests[2], requests[3]]) == [1, 0, 3, 2]
    assert begun(requests) == [0, 1, 2, 3]


def test_a_run_whose_owner_has_ended_is_begun_in_its_turn(requests: list[Request]) -> None:
    store = Store(requests[0].store)
    with store.claim(requests[0].digest):
        (path,) = (store.run_dir(requests[0].digest) / PLACE).iterdir()
        dead = ClaimRecord.model_validate_json(path.read_bytes()).model_copy(update={"pid": 2**22 + 1})
    path.parent.mkdir(parents=True)
    path.write_text(dead.model_dump_json())
    assert begun(requests) == [0, 1, 2, 3]


def test_a_run_that_another_command_has_ended_comes_next(requests: list[Request]) -> None:
    """The run comes next so that what both commands have done is counted as it is done."""
    store, begun = Store(requests[0].store), []
    with ExitStack() as other:
        other.enter_context(store.claim(requests[0].digest))
        for event in OneWorker().run(iter(requests)):
            if event is not None and event.kind == "started":
                begun.append(event.digest)
                other.close()
    assert begun == [requests[index].digest for index in (1, 0, 2, 3)]


def test_a_run_that_is_stopped_while_it_waits_does_not_begin(requests: list[Request]) -> None:
    engine, waits = OneWorker(), requests[0]
    with Store(waits.store).claim(waits.digest):
        for event in (events := engine.run(iter(requests))):
            if event is not None and event.kind == "started":
                engine.stop(waits.digest)
                break
        later = [event for event in events if event is not None]
    assert [event.digest for event in later if event.kind == "started"] == [each.digest for each in requests[2:]]
    assert [event.digest for event in later if event.kind == "failed"] == [waits.digest]
    assert any(event is not None and event.kind == "started" for event in engine.run([waits]))


def test_a_run_that_is_stopped_before_it_is_drawn_does_not_begin_in_this_process(requests: list[Request]) -> None:
    engine = InProcess("cpu")

    def drawn() -> Iterator[Request]:
        engine.stop(requests[0].digest)
        yield requests[0]

    (event,) = engine.run(drawn())
    assert event is not None and (event.kind, event.digest) == ("failed", requests[0].digest)


def test_an_error_of_the_command_s_own_look_ends_the_run_as_a_request_does() -> None:
    """The run, which has not failed, saves its state first."""
    saved = []

    def look() -> None:
        raise OSError("the database is gone")

    stop = StopSignal(look)
    with pytest.raises(OSError, match="the database is gone"), stop.overheard():
        with stop.deferred():
            assert stop.poll()
        saved.append(True)
    assert saved
