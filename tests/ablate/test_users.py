"""One store and several users: what one writes, others read as far as the umask lets them, and are told the truth
where it does not.

The other user is root without its privileges, who may do what the bits of a file let others do.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from store import Store
from store.files import replacing

OWNER = 2001
SERVE = """
import sys, threading, urllib.request
from pathlib import Path
from ablate.wings.serve.server import server
with server(Path(sys.argv[1]), 0) as serving:
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    for page in ("", *sys.argv[2:]):
        print(urllib.request.urlopen(f"http://localhost:{serving.server_port}/{page}").status)
    serving.shutdown()
"""


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077])
def test_files_are_as_the_umask_says_whatever_a_library_thinks(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        with replacing(tmp_path / "model") as folder:
            folder.mkdir()
            for name in ("weights", "spec"):
                (folder / name).touch()
            (folder / "weights").chmod(0o600)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "model").iterdir()} == {0o666 & ~umask}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody can reach."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def plainly(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command of a user without privileges."""
    command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def given_to(owner: int, root: Path) -> None:
    for path in (root, *root.rglob("*")):
        os.chown(path, owner, owner)


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root can be two users")
def test_two_users_share_a_store(study: Path, place: Path) -> None:
    shutil.copytree(study.parent, place / "study")
    file, root = place / "study" / study.name, place / "runs"
    ablate = [sys.executable, "-m", "ablate"]
    run = [*ablate, "run", file, "--store", root, "--engine", "inprocess", "--set", "seeds=1"]
    subprocess.run(list(map(str, run)), check=True, umask=0o002, capture_output=True)
    store = Store(root)
    first, second = store.runs()
    evaluate = ["eval", first, "--store", root, "--tasks", "heldout_text", "--limit", "2"]
    subprocess.run(list(map(str, [*ablate, *evaluate])), check=True, umask=0o002, capture_output=True)
    for path in root.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o775 if path.is_dir() else 0o664), path
    given_to(OWNER, root)
    before, report = contents(root), store.studies()[0].path

    reported = plainly("-m", "ablate", "report", report, "--json")
    assert reported.returncode == 0, reported.stderr
    assert [arm["name"] for arm in json.loads(reported.stdout)["arms"]] == ["pre", "post"]
    scores = plainly("-m", "ablate", *evaluate, "--json")
    assert scores.returncode == 0, scores.stderr
    assert json.loads(scores.stdout)["scores"]["heldout_text"]
    checked = plainly("-m", "ablate", "check", root)
    assert (checked.returncode, checked.stdout) == (0, f"{root}: all files are intact\n")
    served = plainly("-c", SERVE, root, f"studies/{report.name}/report.html")
    assert served.stdout.split() == ["200", "200"], served.stderr
    drawn = plainly("-m", "ablate", "report", report)
    assert (drawn.returncode, drawn.stdout) == (2, "")
    page = f"{report}/report.html: cannot be written (Permission denied)"
    assert drawn.stderr == f"ablate: {page}: `ablate serve {root}` shows a store's pages without writing any\n"
    assert contents(root) == before

    for path in (*store.run_dir(second).rglob("*"), store.run_dir(second)):
        path.chmod(0o700 if path.is_dir() else 0o600)  # of a user with umask 077
    for command in (
        ["report", report, "--json"],
        ["generate", second, "--store", root, "--prompt", "a"],
        ["check", root],
    ):
        refused = plainly("-m", "ablate", *command)
        said = refused.stdout + refused.stderr
        assert refused.returncode in (1, 2) and "Permission denied" in said, said
        assert "remove" not in said and "Traceback" not in said, said
        assert "damaged" not in said


GROUP = 2000
WRITERS = {2001: 0o002, 2002: 0o077}
"""Umask by user."""


def opened(place: Path) -> list[str]:
    """Words before a command in which everybody reaches this interpreter, though it may lie in a folder of root's."""
    closed = [folder for folder in Path(sys.base_prefix).parents if not folder.stat().st_mode & 0o001]
    if not closed:
        return []
    inside = place / "opened" / Path(sys.base_prefix).relative_to(closed[0])
    inside.mkdir(parents=True)
    script = f"mount --bind {sys.base_prefix} {inside} && mount --rbind {place}/opened {closed[0]} && exec $@"
    return ["unshare", "--mount", "sh", "-c", script.replace("$@", '"$@"'), "sh"]


@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("setpriv", "unshare"))), reason="only root can be two users"
)
def test_two_users_with_umasks_of_their_own_write_one_store_at_once(study: Path, place: Path) -> None:
    """What the one keeps to itself the other cannot use, and says so; nothing is damaged, and nothing trained twice."""
    shutil.copytree(study.parent, place / "study")
    file, root, before = place / "study" / study.name, place / "runs", opened(place)
    for path in (file.parent, *file.parent.rglob("*")):
        path.chmod(0o755)
    root.mkdir()
    os.chown(root, -1, GROUP)
    root.chmod(0o2775)

    def begun(user: int) -> subprocess.Popen[str]:
        home = place / f"home{user}"
        home.mkdir(exist_ok=True)
        os.chown(home, user, GROUP)
        lost = ["--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]
        command = ["-m", "ablate", "run", file, "--store", root, "--engine", "inprocess"]
        return subprocess.Popen(
            [*before, "setpriv", f"--reuid={user}", f"--regid={GROUP}", *lost, sys.executable, *map(str, command)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            umask=WRITERS[user],
            env={**os.environ, "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"},
        )

    ended = {
        user: (process.communicate()[0], process.returncode) for user, process in {u: begun(u) for u in WRITERS}.items()
    }
    for said, status in ended.values():
        assert status in (0, 1, 2) and "Traceback" not in said, said
        assert status == 0 or "Permission denied" in said, said
        assert "damaged" not in said and "remove" not in said, said
    more = begun(2002)  # who may read what both wrote
    said = more.communicate()[0]
    assert more.returncode == 0, said
    store = Store(root)
    assert len(store.runs()) == 4
    owners = {path.stat().st_uid for digest in store.runs() for path in [store.result_path(digest)]}
    for digest in store.runs():
        (first,) = {entry.stat().st_uid for entry in store.written(digest)}
        mode = store.result_path(digest).stat().st_mode & 0o777
        assert mode == 0o666 & ~WRITERS[first]
        assert store.log_path(digest).read_text().count("to do on ") == 1  # whoever waited has nothing to do
    checked = subprocess.run(
        [sys.executable, "-m", "ablate", "check", root], capture_output=True, text=True, check=False
    )
    assert checked.stdout == f"{root}: all files are intact\n"
    assert owners <= WRITERS.keys()
