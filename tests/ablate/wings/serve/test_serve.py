"""The local server: what it serves, to whom, and that it follows a study that runs."""

from __future__ import annotations

import http.client
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from ablate.wings.serve.server import CONNECTIONS, ServedStore, server
from ablate.wings.serve.site import render_site
from store import Store, StudyFolder
from store.claims import FolderClaim
from store.documents import MetricsRecord
from tests.reports.factory import HOSTILE, Arm, StudyOf
from tests.reports.searching import write_search

STUDY = StudyOf([Arm("base", [2.4, 2.5], steps=4), Arm("arm", [2.3, None], steps=4)], measured=False)
ADDRESS = "/studies/norm_placement-cpu/report.html"


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[ThreadingHTTPServer]:
    STUDY.write(tmp_path)
    with server(tmp_path, 0) as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def get(serving: ThreadingHTTPServer, path: str, host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", serving.server_port, timeout=60)
    connection.request("GET", path, headers={"Host": host or f"localhost:{serving.server_port}"})
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def test_pages_are_served_to_this_machine_alone(serving: ThreadingHTTPServer) -> None:
    assert serving.server_address[0] == "127.0.0.1"
    assert get(serving, "/")[0] == get(serving, ADDRESS)[0] == 200
    assert 'href="studies/norm_placement-cpu/report.html"' in get(serving, "/")[1]
    assert get(serving, "/", host="localhost")[0] == 200
    assert get(serving, "/", host="evil.example")[0] == get(serving, "/", host="localhost.evil.example")[0] == 403
    for path in ("/studies", "/../../etc/passwd", "/00ab00/run.json", "/studies/..%2f00ab00/run.json"):
        assert get(serving, path)[0] == 404


def test_a_running_study_is_followed(serving: ThreadingHTTPServer, tmp_path: Path) -> None:
    store = Store(tmp_path)
    begun = STUDY.digest(STUDY.arms[1], 1)
    ended = store.read_run(STUDY.digest(STUDY.arms[1], 0))
    assert ended is not None
    store.write_run(ended.model_copy(update={"digest": begun, "seed": 1}))
    store.append_metrics(begun, MetricsRecord(step=2, tokens=8, seconds=1.0, loss=3.25, lr=0.1, tokens_per_second=8.0))
    _, text = get(serving, ADDRESS)
    assert '<meta http-equiv="refresh"' in text
    assert "3 of 4 runs have ended" in text
    assert "arm, seed 1: step 2 of 4, loss 3.250" in text
    assert '<progress value="0.875"' in text  # (3 + 2/4) / 4
    replace(STUDY, arms=[STUDY.arms[0], replace(STUDY.arms[1], losses=[2.3, 2.2])]).write(tmp_path)
    _, text = get(serving, ADDRESS)
    assert 'http-equiv="refresh"' not in text
    assert "runs have ended" not in text


def test_a_study_is_followed_from_its_plan_on(tmp_path: Path) -> None:
    none = replace(STUDY, arms=[replace(arm, losses=[None, None]) for arm in STUDY.arms])
    folder, site = StudyFolder(none.write(tmp_path)), ServedStore(tmp_path)
    assert 'http-equiv="refresh"' not in str(site.page(ADDRESS))
    planned = folder.read()
    assert planned is not None
    folder.write(planned.model_copy(update={"created": datetime.now(UTC).isoformat(timespec="seconds")}))
    assert '<meta http-equiv="refresh"' in str(site.page(ADDRESS))
    assert "0 of 4 runs have ended" in str(site.page(ADDRESS))
    assert "No result yet" in str(site.page(ADDRESS))


def test_a_study_is_followed_until_its_last_run_is_measured_and_evaluated(tmp_path: Path) -> None:
    """Which takes minutes without a new file: a worker's claim on the run tells that it is at work."""
    whole = replace(STUDY, arms=[replace(arm, losses=[2.4, 2.3]) for arm in STUDY.arms])
    whole.write(tmp_path)
    site, claim = ServedStore(tmp_path), FolderClaim(Store(tmp_path).run_dir(whole.digest(whole.arms[1], 1)))
    claim.acquire(60, blocking=False)
    try:
        assert '<meta http-equiv="refresh"' in str(site.page(ADDRESS))
        assert "4 of 4 runs have ended" in str(site.page(ADDRESS))
        assert "4 of 4 runs have ended" in str(site.page("/"))
    finally:
        claim.release()
    assert 'http-equiv="refresh"' not in str(site.page(ADDRESS))
    assert "runs have ended" not in str(site.page("/"))


def test_a_study_keeps_its_figure_when_another_is_added(serving: ThreadingHTTPServer, tmp_path: Path) -> None:
    def drawn(text: str) -> set[str]:
        return set(re.findall(r'id="([^"]+)" class="ranked-frame"', text))

    before = drawn(get(serving, "/")[1])
    replace(STUDY, name="another").write(tmp_path)
    _, text = get(serving, "/")
    assert before < drawn(text)
    assert len(drawn(text)) == 2


def test_searches_are_served_too(serving: ThreadingHTTPServer, tmp_path: Path) -> None:
    folder = write_search(tmp_path, "small")
    assert 'href="searches/small-cpu/report.html"' in get(serving, "/")[1]
    status, text = get(serving, "/searches/small-cpu/report.html")
    assert status == 200
    assert "Trial 0 has the best loss, 2.4" in text
    (folder / "search.json").write_text("{}")
    assert get(serving, "/searches/small-cpu/report.html")[0] == 404
    assert "schema version None" in get(serving, "/")[1]


def test_a_damaged_study_leaves_the_others_in_the_index(serving: ThreadingHTTPServer, tmp_path: Path) -> None:
    replace(STUDY, name="whole").write(tmp_path)
    document = tmp_path / "studies/norm_placement-cpu/study.json"
    document.write_bytes(document.read_bytes().replace(b"norm_placement", b"norm_plaCement"))
    said = "studies/norm_placement-cpu/study.json: its checksum does not match"
    for text in (get(serving, "/")[1], render_site(tmp_path).read_text()):
        assert said in text
        assert 'href="studies/whole-cpu/report.html"' in text
    assert get(serving, "/studies/whole-cpu/report.html")[0] == 200
    assert get(serving, ADDRESS)[0] == 404


def test_a_study_that_cannot_be_reported_says_why(serving: ThreadingHTTPServer, tmp_path: Path) -> None:
    replace(STUDY, name=HOSTILE, identities={("arm", 0): {"data": {"digest": "other"}}}).write(tmp_path)
    status, text = get(serving, "/")
    assert status == 200
    assert "runs trained on different data cannot be compared: data0, other" in text
    assert HOSTILE not in text


def test_head_has_the_length_and_no_page(serving: ThreadingHTTPServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", serving.server_port, timeout=60)
    connection.request("HEAD", "/", headers={"Host": "localhost"})
    response = connection.getresponse()
    assert (response.status, response.read()) == (200, b"")
    assert int(response.headers["Content-Length"]) == len(get(serving, "/")[1].encode())


def test_clients_that_hang_up_or_are_slow_cost_little(
    serving: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A reset, as of a closed tab, prints nothing. A client that sends nothing is given up, and where there are many
    it has no thread until then."""
    monkeypatch.setattr(serving.RequestHandlerClass, "timeout", 1)
    before, clients = threading.active_count(), []
    for _ in range(3 * CONNECTIONS):
        client = socket.create_connection(("127.0.0.1", serving.server_port))
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        clients.append(client)
    assert threading.active_count() - before <= CONNECTIONS
    for client in clients[::2]:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        client.close()
    deadline = time.monotonic() + 30
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() == before
    assert get(serving, "/")[0] == 200
    assert capfd.readouterr().err == ""
    for client in clients[1::2]:
        client.close()


def test_clients_that_send_a_byte_now_and_then_lock_nobody_out(
    serving: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each byte comes well within the time that a request may take, and there are as many clients as threads."""
    monkeypatch.setattr(serving.RequestHandlerClass, "timeout", 2)
    clients = [socket.create_connection(("127.0.0.1", serving.server_port)) for _ in range(CONNECTIONS)]
    ended = threading.Event()

    def drip() -> None:
        while not ended.wait(0.2):
            for client in clients:
                with suppress(OSError):  # given up by the server
                    client.sendall(b"G")

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        deadline = time.monotonic() + 60
        answer = 0
        while answer != 200 and time.monotonic() < deadline:
            with suppress(OSError, http.client.HTTPException):
                answer = get(serving, "/")[0]
        assert answer == 200
    finally:
        ended.set()
        dripping.join()
        for client in clients:
            client.close()
    assert capfd.readouterr().err == ""


STRANGE = (b"GET http://[ HTTP/1.1", b"GET //[/ HTTP/1.1", b"GET /%00%ff HTTP/1.1", bytes(range(128, 256)), b"GET /")


@pytest.mark.parametrize("line", STRANGE)
def test_strange_requests_are_refused_quietly(
    line: bytes, serving: ThreadingHTTPServer, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(("127.0.0.1", serving.server_port), timeout=60) as client:
        client.sendall(line + b"\r\nHost: localhost\r\n\r\n")
        while client.recv(65536):
            pass
    assert get(serving, "/")[0] == 200
    assert capfd.readouterr().err == ""
