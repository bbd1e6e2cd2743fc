"""Servers in which a search can keep its trials, started for a test and stopped after it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ablate.wings.search.documents import SearchFolder
from ablate.wings.search.storage import open_storage

PROXY = """
import sys
from optuna.storages import get_storage, run_grpc_proxy_server
run_grpc_proxy_server(get_storage(sys.argv[1]), host="localhost", port=int(sys.argv[2]))
"""


@contextmanager
def postgresql() -> Iterator[str]:
    """The URL of a server with a database of its own, on a socket in a folder of its own.

    PostgreSQL refuses to run as root, so root runs it as nobody.
    """
    programs = _postgresql_programs()
    user = "nobody" if os.geteuid() == 0 else None

    def command(program: str, *words: str) -> None:
        subprocess.run([programs / program, *words], check=True, stdout=subprocess.DEVNULL, user=user, cwd="/")

    with tempfile.TemporaryDirectory(prefix="ablate-pg-", dir="/tmp") as folder:  # a socket's path must be short
        if user:
            shutil.chown(folder, user)
        data = f"{folder}/data"
        command("initdb", "-D", data, "-U", "ablate", "-A", "trust", "--no-sync")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        command("pg_ctl", "-D", data, "-l", f"{folder}/log", "-w", "-o", options, "start")
        try:
            yield f"postgresql://ablate@/postgres?host={folder}"
        finally:
            command("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")


def _postgresql_programs() -> Path:
    """Where they are: on the PATH, or where Debian keeps them. Skips the test where there are none."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not folders:
        pytest.skip("no PostgreSQL server is installed (initdb)")
    return folders[-1]


@contextmanager
def grpc_proxy(url: str, folder: Path) -> Iterator[str]:
    """The URL of a proxy to the storage at `url`."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-W", "ignore", "-c", PROXY, url, str(port)]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        storage = open_storage(f"grpc://localhost:{port}", SearchFolder(folder))
        storage.wait_server_ready(timeout=60)  # type: ignore[attr-defined]
        yield f"grpc://localhost:{port}"
    finally:
        server.kill()
        server.wait()
