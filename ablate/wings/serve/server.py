"""HTTP server of a store's pages for this machine only; pages are rendered again when the store changes."""

from __future__ import annotations

import io
import socket
import sys
import threading
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from ablate.wings.serve.site import IndexEntry, entry_of, link_to, render_index, shown, trade_offs_of
from reports.judge.reading.documents import StudyDocuments
from reports.judge.reading.outcomes import StudyProgress, study_progress
from reports.page.html.page import render_page
from store import Store, StoreError, StudyFolder
from store.errors import ReportError
from store.tables import SOURCES

LOCALHOST = "127.0.0.1"
NAMES = (LOCALHOST, "localhost")
"""Accepted host names; accepting others would let a foreign page read this server (DNS rebinding)."""
TIMEOUT_SECONDS = 10
"""Longest time that a client may take to send a request, and to receive an answer."""
CONNECTIONS = 64
"""Most connections served at once."""
Written = tuple[bytes, frozenset[tuple[str, int, int]]]
"""Stamps of the files from which frames are read, and (path, time, size) of all others."""


@dataclass
class _Study:
    """Latest rendered pages of a study, and the state of the files that they show; None if these cannot be read."""

    written: Written | None
    entry: IndexEntry
    pages: dict[StudyProgress, str] = field(default_factory=dict)


class ServedStore:
    """The pages of a store. A study is read again if a file of its runs changed."""

    def __init__(self, root: Path | str) -> None:
        self.store = Store(root)
        self._studies: dict[StudyFolder, _Study] = {}
        self._lock = threading.Lock()

    def page(self, path: str) -> str | None:
        """The page at a URL path; None if there is none."""
        with self._lock:
            asked = path.removeprefix("/")
            if asked in ("", link_to(self.store, self.store.index_path)):
                entries = [self._study(folder).entry for folder in self.store.studies()]
                running = any(entry.progress and entry.progress.is_running for entry in entries)
                return render_index(self.store, entries, refresh=running)
            if asked == link_to(self.store, self.store.trade_offs_path):
                entries = [self._study(folder).entry for folder in self.store.studies()]
                return trade_offs_of(self.store, entries)
            for study in self.store.studies():
                if link_to(self.store, study.report_path) == quote(unquote(asked)):
                    return self._report(study)
            return next(filter(None, (each.page(self.store, quote(unquote(asked))) for each in shown())), None)

    def _report(self, folder: StudyFolder) -> str | None:
        study = self._study(folder)
        if study.entry.summary is None:
            return None
        progress = study.entry.progress
        assert progress is not None  # only a search has none
        if progress not in study.pages:
            study.pages = {progress: render_page(study.entry.summary, progress, home="/")}
        return study.pages[progress]

    def _study(self, folder: StudyFolder) -> _Study:
        known = self._studies.get(folder)
        try:
            documents = StudyDocuments.of(folder.path, self.store)
            written = _written(documents)
            progress = study_progress(self.store, documents.study, documents.statuses)
        except (ReportError, StoreError, OSError):  # the index entry has the error
            return _Study(None, entry_of(self.store, folder))
        if known is None or known.written != written or known.entry.progress != progress:
            known = self._studies[folder] = _Study(written, entry_of(self.store, folder, documents, progress))
        return known


def _written(documents: StudyDocuments) -> Written:
    """The state of every document and log that a study's page uses."""
    store, study, path = documents.store, documents.study, documents.folder.document_path
    runs = {key.digest for key in documents.keys}
    smaller = {run.digest for rung in study.ladder for arm in rung.arms for run in arm.runs} - runs
    others = [entry for digest in runs for entry in store.written(digest) if entry.name not in SOURCES]
    files = [*others, *(entry for digest in smaller for entry in store.written(digest))]
    found = [(str(path), path.stat()), *((entry.path, entry.stat()) for entry in files)]
    return documents.tables.stamps, frozenset((place, of.st_mtime_ns, of.st_size) for place, of in found)


class _Until(io.RawIOBase):
    """Bytes that a client sends until a deadline, however spread over the time. Then reading raises TimeoutError."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection, self._deadline = connection, time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class _Server(ThreadingHTTPServer):
    """One thread per connection, up to `CONNECTIONS`; further ones are closed at once, and a browser asks again."""

    request_queue_size = 2 * CONNECTIONS
    """Most clients waiting to be accepted; beyond that, the kernel makes some retry a second later."""

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._free = threading.Semaphore(CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect, as closing a tab does."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def server(root: Path | str, port: int) -> ThreadingHTTPServer:
    """A server that listens on the loopback address only; port 0 means any free port."""
    site = ServedStore(root)

    class Handler(BaseHTTPRequestHandler):
        timeout = TIMEOUT_SECONDS

        def setup(self) -> None:
            super().setup()
            self.rfile.close()
            self.rfile = io.BufferedReader(_Until(self.connection, self.timeout))

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            self.connection.settimeout(self.timeout)  # for the whole answer
            if self.headers.get("Host", "").partition(":")[0] not in NAMES:
                self.send_error(HTTPStatus.FORBIDDEN)
                return
            page = site.page(self.path.partition("?")[0])
            if page is None:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            content = page.encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Print nothing: the terminal is for errors."""

    return _Server((LOCALHOST, port), Handler)
