"""Stores travel: what one lab trained is the same in another's store, and what must not be used writes nothing."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import re
import shutil
import signal
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import ablate
import reports
from ablate.cli import main
from ablate.running.request import scratch
from ablate.wings.archive import joining
from ablate.wings.archive.archive_file import MANIFEST, PackDocument
from ablate.wings.science.sections.claims import outcomes
from store import Store, StoreError, StudyFolder, checksum, files, jsonfile, seals
from store.documents import GpuState, MergedRecord, StudyDocument
from store.seals import Chain
from tests.ablate.test_seals import files_of_at_most
from tests.test_imports import ROOT

Members = dict[str, bytes]


def trained_with(study: Path, store: Path, seeds: list[int], *more: str) -> str:
    """Train these seeds in a store, and return its name."""
    arguments = ["run", str(study), "--store", str(store), "--engine", "inprocess", "--set", f"seeds={seeds}"]
    assert main([*arguments, *more]) == 0
    return str(store)


@pytest.fixture(scope="module")
def labs(study: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two labs with two seeds each, and one that looked at the same seeds in the same order."""
    root = tmp_path_factory.mktemp("labs")
    found = {name: root / name / "runs" for name in ("a", "b", "both")}
    trained_with(study, found["a"], [0, 1])
    trained_with(study, found["b"], [2, 3])
    for seeds in ([0, 1], [2, 3]):
        trained_with(study, found["both"], seeds)
    return found


def packed(store: Path, out: Path, **settings: Any) -> Path:
    return ablate.pack("tiny", out=out, store=store, **settings).path


@pytest.fixture(scope="module")
def of_b(labs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packed(labs["b"], tmp_path_factory.mktemp("pack") / "b.zip", weights=True)


def without_clock(root: Path) -> dict[str, Any]:
    """Content of a page on the arms, but for the machine and the time."""
    summary = reports.summarise(Store(root).study("tiny", "cpu").path)
    clock = {"tokens_per_second", "peak_memory_bytes", "train_seconds"}
    arms = ablate.open(root).result("tiny").arms
    kept = [name for name in arms.columns if not any(name.startswith(each) for each in clock)]
    contrasts = ablate.open(root).result("tiny").contrasts.drop("speed_ratio", "memory_ratio")
    ledger = ablate.open(root).ledger("tiny").drop("judged")
    return {
        "arms": arms.select(kept).rows(),
        "contrasts": contrasts.rows(),
        "ledger": ledger.rows(),
        "claims": outcomes(summary),
        "noise": summary.noise,
    }


def test_two_labs_are_one_store(labs: dict[str, Path], of_b: Path, study: Path, tmp_path: Path) -> None:
    """The merged store says what one says in which the same seeds were trained and looked at in the same order."""
    here = shutil.copytree(labs["a"], tmp_path / "runs")
    found = ablate.merge(of_b, store=here)
    assert (len(found.new), found.refused, found.judgements, found.machines) == (4, {}, {"tiny": 1}, {})
    report = ablate.check(here)
    assert (list(report), report.unchecked) == ([], {})
    (line,) = found.kept
    assert '--set "seeds=[0,1,2,3]"' in line
    for root in (here, labs["both"]):
        result = ablate.run(study, store=root, sets={"seeds": [0, 1, 2, 3]}, progress=False, engine="inprocess")
        assert (result.trained, result.reused) == (0, 8)
    assert without_clock(here) == without_clock(labs["both"])
    alone, joined = (ablate.open(root).ledger("tiny") for root in (labs["a"], here))
    assert (alone.height, alone["round"].max(), joined["round"].max()) == (1, 1, 2)  # what both looked at counts
    again = ablate.merge(of_b, store=here)
    assert (again.new, len(again.known), again.judgements) == ((), 4, {})


def test_a_study_arrives_whole_in_a_new_store(labs: dict[str, Path], tmp_path: Path) -> None:
    here = tmp_path / "new" / "runs"
    light = packed(labs["b"], tmp_path / "light.zip")
    found = ablate.merge(light, store=here)
    assert found.studies == ("tiny at cpu",)
    assert list(ablate.check(here)) == []
    assert without_clock(here) == without_clock(labs["b"])
    assert ablate.report(here).exists()
    document = Store(here).study("tiny", "cpu").read()
    assert document is not None and document.path == "tiny.yaml"  # not where it lay in the other lab
    assert not any(Store(here).model_dir(digest).exists() for digest in found.new)
    heavy = ablate.merge(packed(labs["b"], tmp_path / "heavy.zip", weights=True), store=here)
    assert (heavy.new, len(heavy.completed)) == ((), 4)
    assert list(ablate.check(here)) == []
    (Store(here).model_dir(found.new[0]) / "weights.safetensors").unlink()
    assert any(found.new[0] in line for line in ablate.check(here))
    ablate.open(here).model(found.new[1])


@pytest.mark.parametrize("moves", range(7))
def test_a_merge_that_is_killed_can_be_repeated(
    moves: int, of_b: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was taken over by then is whole: four runs and a text's description are moved, the study is written."""
    here, whole, left = tmp_path / "runs", tmp_path / "whole", iter(range(moves))
    move = joining.move

    def moved(source: Path, target: Path) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        move(source, target)

    def written(folder: StudyFolder, study: StudyDocument) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        jsonfile.write(folder.document_path, study)

    monkeypatch.setattr(joining, "move", moved)
    monkeypatch.setattr(StudyFolder, "write", written)
    with pytest.raises(KeyboardInterrupt) if moves < 6 else nullcontext():
        ablate.merge(of_b, store=here)
    monkeypatch.undo()
    report = ablate.check(here)
    assert (list(report), report.unchecked) == ([], {})
    ablate.merge(of_b, store=here)
    ablate.merge(of_b, store=whole)
    assert list(ablate.check(here)) == [] and without_clock(here) == without_clock(whole)
    names = [{str(path.relative_to(root)) for path in root.rglob("*.json")} for root in (here, whole)]
    assert {name for name in names[0] if "checked" not in name} == {name for name in names[1] if "checked" not in name}


LEAVES = """
import os, signal, sys
from pathlib import Path
from ablate.wings.archive import joining, merging
joining.move = merging.move = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
merging.merge(sys.argv[1], store=sys.argv[2])
"""


@pytest.mark.slow
@pytest.mark.processes
def test_what_a_killed_merge_leaves_is_named_and_the_next_one_removes_it(
    of_b: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "runs"
    here.mkdir()
    killed = subprocess.run([sys.executable, "-c", LEAVES, str(of_b), str(here)], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = here.glob(".merge-*")
    said = f"{left} was left by a killed merge: remove it, or merge the archive again"
    assert list(ablate.check(here)) == [said]
    with scratch(".merge-", here) as busy:  # of a merge that is at work
        assert not left.exists() and list(ablate.check(here)) == []
        ablate.merge(of_b, store=here)
        assert list(here.glob(".merge-*")) == [busy]
    assert not list(here.glob(".merge-*")) and list(ablate.check(here)) == []


def again(archive: Path, target: Path, top: str, others: Members) -> Path:
    """An archive that somebody unpacked and zipped again: its folders, and what file managers add."""
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        if top:
            new.mkdir(top)
        for name in source.namelist():
            new.writestr(f"{top}/{name}".removeprefix("/"), source.read(name))
        for name, content in others.items():
            new.writestr(name, content)
    return target


@pytest.mark.parametrize(
    ("top", "others"),
    [
        ("b", {"__MACOSX/b/._manifest.json": b"\0\5\x16\7", "b/.DS_Store": b"\0\0\0\1Bud1"}),
        ("Lab B (2)", {"Lab B (2)/studies/Thumbs.db": b"x", "Lab B (2)/desktop.ini": b"x"}),
        ("", {"__MACOSX/._studies": b"x", "studies/._tiny-cpu": b"x"}),
    ],
)
def test_an_archive_that_was_zipped_again_is_merged(top: str, others: Members, of_b: Path, tmp_path: Path) -> None:
    whole, here = tmp_path / "whole", tmp_path / "runs"
    ablate.merge(again(of_b, tmp_path / "again.zip", top, others), store=here)
    ablate.merge(of_b, store=whole)
    assert list(ablate.check(here)) == [] and without_clock(here) == without_clock(whole)


def test_a_top_folder_hides_nothing(of_b: Path, tmp_path: Path) -> None:
    for name in ("b/../evil.json", "b/x/../../../evil.json", "other/run.json", "b/evil.py", "b/.hidden/run.json"):
        with pytest.raises(StoreError, match=r"is not allowed in an archive|it has no manifest"):
            ablate.merge(again(of_b, tmp_path / "evil.zip", "b", {name: b"{}"}), store=tmp_path / "runs")
        assert not (tmp_path / "runs").exists()
    ablate.merge(again(of_b, tmp_path / "evil.zip", "b", {"__MACOSX/../evil.json": b"{}"}), store=tmp_path / "runs")
    assert {path.name for path in tmp_path.iterdir()} == {"evil.zip", "runs"}  # left out, and so never written


def test_a_full_disk_is_named_wherever_it_is_noticed(
    of_b: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While the archive is unpacked, and at each flush, up to the merge that has room."""
    with files_of_at_most(1000):
        assert main(["merge", str(of_b), "--store", str(tmp_path / "limited")]) == 2
    assert f"{of_b}, unpacked in {tmp_path}: " in capsys.readouterr().err
    ends, store = os.fsync, tmp_path / "runs"
    status, flushes = 2, 0
    while status == 2:
        left = iter(range(flushes))

        def full(descriptor: int, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            ends(descriptor)

        monkeypatch.setattr(os, "fsync", full)
        status = main(["merge", str(of_b), "--store", str(store)])
        monkeypatch.undo()
        said = capsys.readouterr().err
        assert status == 0 or re.search(rf"{of_b}, unpacked in|{store}/\S+", said), (flushes, said)
        flushes = flushes + 1 if flushes < 12 else 2 * flushes
    assert flushes > 12 and list(ablate.check(store)) == []


def test_a_full_disk_is_named_when_a_log_of_the_store_grows(
    labs: dict[str, Path], of_b: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Store(shutil.copytree(labs["a"], tmp_path / "runs"))
    run = here.runs()[0]
    record = MergedRecord(
        at="2026-01-01T00:00:00+00:00", archive="0" * 64, run=run, finished="2026-01-01T00:00:00+00:00", weights=True
    )
    here.merged_log.append([record] * 20_000)  # longer than any file of the archive
    size = here.merged_log.path.stat().st_size
    with files_of_at_most(size + 10):
        assert main(["merge", str(of_b), "--store", str(here.root)]) == 2
    assert str(here.merged_log.path) in capsys.readouterr().err
    assert here.merged_log.path.stat().st_size == size and list(ablate.check(here.root)) == []


def test_a_pipe_in_place_of_a_ledger_is_named(of_b: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ablate.merge(of_b, store=tmp_path / "runs")
    (ledger,) = (tmp_path / "runs" / "ledger").iterdir()
    ledger.unlink()
    os.mkfifo(ledger)
    assert main(["merge", str(of_b), "--store", str(tmp_path / "runs")]) == 2
    assert capsys.readouterr().err == f"ablate: {ledger}: not a regular file\n"


def test_the_list_of_merged_runs_is_read_as_often_whatever_their_number(
    of_b: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read for each run, it made a check quadratic."""
    found = ablate.merge(of_b, store=tmp_path / "runs")
    read: list[str] = []
    monkeypatch.setattr(seals, "read_regular", lambda path: read.append(path.name) or files.read_regular(path))
    times = []
    for run in found.new[:3]:
        read.clear()
        assert list(ablate.check(tmp_path / "runs")) == []
        times.append(read.count("merged.ndjson"))
        shutil.rmtree(tmp_path / "runs" / run)
    assert times[0] == times[1] == times[2] > 0


def test_a_study_whose_every_run_failed_is_no_older_version_s(labs: dict[str, Path], tmp_path: Path) -> None:
    """Its page compares nothing, so that it is in no ledger."""
    here = Store(shutil.copytree(labs["a"], tmp_path / "runs"))
    for digest in here.runs():
        shutil.rmtree(here.run_dir(digest))
        here.write_error(digest, "RuntimeError: no", "a traceback")
    for path in (*here.root.glob("ledger/*"), *here.root.glob("studies/*/judged.json")):
        path.unlink()
    assert here.studies()[0].report_path.exists()
    report = ablate.check(here.root)
    assert (list(report), report.unchecked) == ([], {})


def test_the_same_content_is_the_same_archive(labs: dict[str, Path], tmp_path: Path) -> None:
    one, two = (ablate.pack("tiny", out=tmp_path / name, store=labs["a"]) for name in ("one.zip", "two.zip"))
    assert one.sha256 == two.sha256 == hashlib.sha256(two.path.read_bytes()).hexdigest()
    assert {Path(name).name for name in zipfile.ZipFile(one.path).namelist()} == {
        *(MANIFEST, "run.json", "result.json", "metrics.ndjson", "losses.ndjson"),
        *("study.json", "judged.json", "tiny.ndjson", "meta.json"),
        *(path.name for path in labs["a"].glob("data/*/references-*.json")),
    }


def test_a_run_with_other_results_is_refused_by_name(
    labs: dict[str, Path], of_b: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = shutil.copytree(labs["b"], tmp_path / "runs")
    store = Store(here)
    digest = store.runs()[0]
    result, losses = store.read_result(digest), store.read_losses(digest)
    assert result is not None and losses is not None and result.judging_loss is not None
    store.write_result(result.model_copy(update={"judging_loss": result.judging_loss + 1e-3}), losses)
    before = store.result_path(digest).read_bytes()
    assert main(["merge", str(of_b), "--store", str(here)]) == 1
    assert f"refused: {digest}: its results differ from those in this store: judging_loss" in capsys.readouterr().out
    assert store.result_path(digest).read_bytes() == before


def test_a_run_with_other_costs_is_the_same_run(labs: dict[str, Path], of_b: Path, tmp_path: Path) -> None:
    """Here on a GPU whose clock, memory and data sheet are another's: nothing that the digest determines."""
    store = Store(shutil.copytree(labs["b"], tmp_path / "runs"))
    digest = store.runs()[0]
    result, losses = store.read_result(digest), store.read_losses(digest)
    assert result is not None and losses is not None and result.tokens_per_second is not None
    quartiles = result.tokens_per_second
    gpu = GpuState(clock_mhz=quartiles, power_watts=quartiles, celsius=60.0, slowed_by={"power": 0.1}, samples=9)
    told = {"gpu": gpu, "mfu_published": 0.4, "published_flops_per_second": 1e15, "peak_memory_reserved_bytes": 9}
    store.write_result(result.model_copy(update={**told, "waiting": 0.5, "devices": 2}), losses)
    found = ablate.merge(of_b, store=store.root)
    assert not found.refused and digest in found.known


def test_a_run_that_has_begun_here_stays(labs: dict[str, Path], of_b: Path, tmp_path: Path) -> None:
    here = Store(shutil.copytree(labs["a"], tmp_path / "runs"))
    digest = Store(labs["b"]).runs()[0]
    run = Store(labs["b"]).read_run(digest)
    assert run is not None
    here.write_run(run)
    found = ablate.merge(of_b, store=here.root)
    assert list(found.refused) == [digest] and "is unfinished in this store" in found.refused[digest]
    assert len(found.new) == 3 and here.read_result(digest) is None


def test_runs_of_another_machine_are_marked(labs: dict[str, Path], study: Path, tmp_path: Path) -> None:
    """On the terminal and, where a study has both, in its report."""
    theirs = Store(shutil.copytree(labs["b"], tmp_path / "theirs"))
    for digest in theirs.runs():
        result, losses = theirs.read_result(digest), theirs.read_losses(digest)
        assert result is not None and losses is not None
        environment = result.environment.model_copy(update={"device": "another\nprocessor"})
        theirs.write_result(result.model_copy(update={"environment": environment}), losses)
    archive = packed(theirs.root, tmp_path / "theirs.zip")
    here = shutil.copytree(labs["a"], tmp_path / "runs")
    found = ablate.merge(archive, store=here)
    assert [(name.split(",")[0], count) for name, count in found.machines.items()] == [("another processor", 4)]
    result = ablate.run(study, store=here, sets={"seeds": [0, 1, 2, 3]}, progress=False, engine="inprocess")
    assert result.trained == 0 and result.summary is not None
    assert any("The runs differ in device" in warning for warning in result.summary.warnings)


def rewritten(archive: Path, change: Callable[[Members], None], target: Path) -> Path:
    """The archive with other members, whose manifest and checksums fit again."""
    with zipfile.ZipFile(archive) as source:
        members = {name: source.read(name) for name in source.namelist()}
    old = PackDocument.model_validate_json(checksum.unsealed_json(members.pop(MANIFEST)).body)
    change(members)
    sums = {name: {"bytes": len(content), "sha256": checksum.of(content)} for name, content in members.items()}
    manifest = PackDocument.model_validate({**old.model_dump(by_alias=True), "files": sums, "runs": old.runs})
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        new.writestr(MANIFEST, jsonfile.sealed(target, manifest, MANIFEST))
        for name, content in members.items():
            new.writestr(name, content)
    return target


def first(members: Members, name: str) -> str:
    return next(place for place in sorted(members) if place.endswith(name))


def resealed(content: bytes, change: Callable[[dict[str, Any]], None], place: str) -> bytes:
    """A document with other fields and a checksum that fits them."""
    fields = json.loads(checksum.unsealed_json(content).body)
    change(fields)
    return checksum.sealed_json(json.dumps(fields, indent=1, ensure_ascii=False) + "\n", place).encode()


def edited(name: str, change: Callable[[dict[str, Any]], None]) -> Callable[[Members], None]:
    """Change a document as somebody would who knows how it is sealed."""

    def edit(members: Members) -> None:
        place = first(members, name)
        members[place] = resealed(members[place], change, "/".join(place.split("/")[-2:]))

    return edit


def renamed_run(members: Members) -> None:
    """A run's settings under another run's digest: what somebody would do to smuggle in results."""
    one, two = sorted({place.split("/")[0] for place in members if place.endswith("run.json")})[:2]
    place = f"{one}/run.json"
    members[place] = resealed(members[f"{two}/run.json"], lambda fields: fields.update(digest=one), place)


def forged_ledger(members: Members) -> None:
    place = first(members, "ledger/tiny.ndjson")
    chain, lines = Chain("tiny"), members[place].splitlines()
    bodies = [chain.body(line) for line in lines]
    record = json.loads(bodies[0] or b"")
    record["judged"] = "yesterday"
    body = json.dumps(record, separators=(",", ":")).encode()
    members[place] = Chain("tiny").sealed(body)
    del members[first(members, "judged.json")]


def digit(members: Members) -> None:
    place = first(members, "result.json")
    members[place] = members[place].replace(b'"loss": ', b'"loss": 1', 1)


def proposal(members: Members) -> None:
    """The study under the name of a proposal, in the folder of that name."""
    content = members.pop(first(members, "study.json"))
    del members[first(members, "judged.json")]
    place = "judge-x-1-cpu/study.json"
    members[f"studies/{place}"] = resealed(content, lambda fields: fields.update(name="judge-x-1"), place)


def another_loss(fields: dict[str, Any]) -> None:
    fields["loss"] += 0.01


def drop(name: str) -> Callable[[Members], None]:
    return lambda members: members.pop(first(members, name)) and None


def put(name: str, content: bytes) -> Callable[[Members], None]:
    return lambda members: members.update({name: content})


def pickled_weights(members: Members) -> None:
    """Weights that are a pickle under another name, in a model whose checksums fit."""
    place = first(members, "model/weights.safetensors")
    members[place] = pickle.dumps({"weights": [1.0]})
    sums = place.replace("weights.safetensors", "sums.json")

    def fit(fields: dict[str, Any]) -> None:
        fields["sha256"]["weights.safetensors"] = checksum.of(members[place])

    members[sums] = resealed(members[sums], fit, "/".join(sums.split("/")[-2:]))


def with_rung(name: str, **changes: Any) -> Callable[[dict[str, Any]], None]:
    def change(fields: dict[str, Any]) -> None:
        fields["ladder"] = [{"name": name, "axis": None, "arms": fields["arms"], "tuning": [], **changes}]

    return change


POISONED: dict[str, tuple[Callable[[Members], None], str]] = {
    "traversal": (put("../../evil.json", b"{}"), "'../../evil.json' is not allowed in an archive"),
    "traversal inside": (put("aaaaaaaaaa/../../run.json", b"{}"), "is not allowed in an archive"),
    "absolute": (put("/etc/passwd", b""), "'/etc/passwd' is not allowed in an archive"),
    "dots of Windows": (put("..\\evil.json", b"{}"), "is not allowed in an archive"),
    "pickle": (put("aaaaaaaaaa/state.pt", pickle.dumps(1)), "'aaaaaaaaaa/state.pt' is not allowed in an archive"),
    "pickle as weights": (pickled_weights, "weights.safetensors is not a safetensors file"),
    "code": (put("aaaaaaaaaa/model/modeling.py", b"import os"), "is not allowed in an archive"),
    "page": (put("studies/tiny-cpu/report.html", b"<script>"), "is not allowed in an archive"),
    "forged digest": (renamed_run, "its settings have the digest"),
    "seed": (edited("run.json", lambda fields: fields.update(seed=77)), "its settings have the digest"),
    "digit": (digit, "result.json: its checksum does not match"),
    "digit, sealed again": (
        edited("result.json", another_loss),
        "result.json: `loss` is not the mean of losses.ndjson",
    ),
    "no result": (drop("result.json"), "run.json or result.json is missing"),
    "no losses": (drop("losses.ndjson"), "losses.ndjson: is gone"),
    "ledger without a judgement": (drop("ledger/tiny.ndjson"), "lacks a judgement"),
    "ledger with another time": (forged_ledger, "expected an ISO 8601 time with a time zone"),
    "study of another name": (
        edited("study.json", lambda fields: fields.update(name="other")),
        "its name and scale do not match its folder name",
    ),
    "study of a campaign": (proposal, "lacks proposal 1"),
    "baseline": (
        edited("study.json", lambda fields: fields.update(baseline="nobody")),
        "`baseline` names an arm that does not exist",
    ),
    **{
        f"arm {name!r}": (
            edited("study.json", lambda fields, name=name: fields["arms"][-1].update(name=name)),
            "is no name of an arm",
        )
        for name in (
            "two; touch X",
            "<script>",
            "two\x1b[31m",
            "two\n",
            "two+lr=$(id)",
            "two+lr=\x1b[2J",
            "two+lr=1\r",
            f"two{'+a=1' * 40}<",
        )
    },
    "scale": (edited("study.json", lambda fields: fields.update(next_scale="gpu; touch X")), "is no name of a scale"),
    "rung": (edited("study.json", with_rung("two; touch X")), "'two; touch X' is no name of a rung"),
    "rung without arms": (edited("study.json", with_rung("two", arms=[])), "arms are missing"),
    "no tokens": (edited("study.json", lambda fields: fields["arms"][0].update(tokens=0)), "arms.0.tokens: "),
    "number": (edited("result.json", lambda fields: fields.update(tokens=10**30)), "has more than 64 bits"),
    "time": (
        edited("result.json", lambda fields: fields.update(started="yesterday")),
        "started: expected an ISO 8601 time with a time zone, not 'yesterday'",
    ),
    "unknown field": (edited("run.json", lambda fields: fields.update(evil=1)), "evil: unknown field"),
    "unsealed": (
        lambda members: members.update(
            {(place := first(members, "run.json")): checksum.unsealed_json(members[place])[0]}
        ),
        "without its checksum",
    ),
}


def assert_refused(archive: Path, store: Path, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(store.parent.rglob("*"))
    assert main(["merge", str(archive), "--store", str(store)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line and line.startswith(f"ablate: {archive} cannot be merged: ")
    assert ".merge-" not in line and len(line) < 400
    assert sorted(store.parent.rglob("*")) == before


@pytest.mark.parametrize("name", POISONED)
def test_a_poisoned_archive_is_refused_in_a_line(
    name: str, of_b: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, says = POISONED[name]
    archive = rewritten(of_b, change, tmp_path / "poisoned.zip")
    (tmp_path / "lab").mkdir()
    assert_refused(archive, tmp_path / "lab" / "runs", says, capsys)


def test_the_rewritten_archive_itself_is_good(of_b: Path, tmp_path: Path) -> None:
    """Each of the above is refused for its change alone. What would lead a later command is left out."""
    led = {"path": "/root/tiny.yaml", "plugin_files": ["/tmp/evil.py"], "engine": "--engine ray --address evil:1"}
    change = edited("study.json", lambda fields: fields.update(led))
    archive = rewritten(of_b, change, tmp_path / "good.zip")
    assert len(ablate.merge(archive, store=tmp_path / "runs").new) == 4
    (study,) = Store(tmp_path / "runs").study_documents()
    assert study.command() == "ablate run tiny.yaml --scale cpu --set 'seeds=[2, 3]'"


def of_members(target: Path, *members: tuple[zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for info, content in members:
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return target


def special(name: str, kind: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = (kind | 0o777) << 16
    return info


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFDIR])
def test_links_and_devices_are_refused(kind: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = of_members(tmp_path / "odd.zip", (special("aaaaaaaa/run.json", kind), b"/etc/passwd"))
    (tmp_path / "lab").mkdir()
    assert_refused(archive, tmp_path / "lab" / "runs", "is not a regular file", capsys)


def test_bombs_are_refused(of_b: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lab").mkdir()
    store = tmp_path / "lab" / "runs"
    large = of_members(tmp_path / "large.zip", (zipfile.ZipInfo("aaaaaaaa/run.json"), bytes(65 * 2**20)))
    assert large.stat().st_size < 2**17
    assert_refused(large, store, "aaaaaaaa/run.json has 68,157,440 bytes, above the limit of 67,108,864", capsys)
    assert main(["merge", str(of_b), "--store", str(store), "--limit", "10KB"]) == 2
    assert "above the limit of 10,000: raise --limit if you expect that" in capsys.readouterr().err
    small = of_members(tmp_path / "small.zip", (zipfile.ZipInfo(MANIFEST), bytes(2**20)))
    lying = small.read_bytes().replace((2**20).to_bytes(4, "little"), (40).to_bytes(4, "little"))
    (tmp_path / "lying.zip").write_bytes(lying)
    assert_refused(tmp_path / "lying.zip", store, "damaged", capsys)
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = of_members(tmp_path / "twice.zip", *((zipfile.ZipInfo("aaaaaaaa/run.json"), b"{}") for _ in range(2)))
    assert_refused(twice, store, "it contains 'aaaaaaaa/run.json' twice", capsys)


def test_other_files_and_damage_are_refused(of_b: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lab").mkdir()
    store, content = tmp_path / "lab" / "runs", of_b.read_bytes()
    cases = {"text": b"hello", "empty": b"", "half": content[: len(content) // 2], "end gone": content[:-30]}
    for name, changed in cases.items():
        (tmp_path / f"{name}.zip").write_bytes(changed)
        assert_refused(tmp_path / f"{name}.zip", store, "damaged", capsys)
    other = of_members(tmp_path / "other.zip", (zipfile.ZipInfo("aaaaaaaa/run.json"), b"{}"))
    assert_refused(other, store, f"has no {MANIFEST}", capsys)
    os.mkfifo(tmp_path / "pipe.zip")
    assert main(["merge", str(tmp_path / "pipe.zip"), "--store", str(store)]) == 2
    assert main(["merge", str(tmp_path / "gone.zip"), "--store", str(store)]) == 2
    assert all(line.startswith("ablate: ") for line in capsys.readouterr().err.splitlines())


def test_any_changed_byte_is_noticed(of_b: Path, tmp_path: Path) -> None:
    """Each is refused, or changes nothing that is read, such as the date of a member."""
    content, archive = of_b.read_bytes(), tmp_path / "changed.zip"
    ablate.merge(of_b, store=tmp_path / "good")
    good = {path.relative_to(tmp_path / "good"): path.read_bytes() for path in (tmp_path / "good").rglob("*.json")}
    end = content.rindex(b"PK\x05\x06")
    directory = int.from_bytes(content[end + 16 : end + 20], "little")
    first_entry = range(directory, directory + 46)  # every field of it
    for place in (*range(7, len(content), len(content) // 40), *first_entry, *range(end, len(content))):
        archive.write_bytes(content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :])
        store = tmp_path / f"runs{place}"
        try:
            ablate.merge(archive, store=store)
        except StoreError:
            assert not store.exists()
        else:
            assert {path.relative_to(store): path.read_bytes() for path in store.rglob("*.json")} == good


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["nobody"], "there is no such study"),
        (["tiny/nobody"], "has no arm 'nobody'"),
    ],
)
def test_what_is_not_there_cannot_be_packed(
    names: list[str], says: str, labs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.zip"
    assert main(["pack", *names, "--out", str(out), "--store", str(labs["a"])]) == 2
    assert says in capsys.readouterr().err and not out.exists()


def test_a_damaged_store_is_not_packed(labs: dict[str, Path], tmp_path: Path) -> None:
    here = Store(shutil.copytree(labs["a"], tmp_path / "runs"))
    path = here.losses_path(here.runs()[0])
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(StoreError, match=r"losses\.ndjson"):
        packed(here.root, tmp_path / "x.zip")
    assert not (tmp_path / "x.zip").exists()


def test_a_study_whose_name_begins_a_digest_is_the_study(labs: dict[str, Path], tmp_path: Path) -> None:
    here = Store(shutil.copytree(labs["a"], tmp_path / "runs"))
    study, name = here.study("tiny", "cpu").read(), here.runs()[0][:2]
    assert study is not None
    here.study(name, "cpu").write(study.model_copy(update={"name": name}))
    found = ablate.pack(name, out=tmp_path / "x.zip", store=here.root)
    assert (found.studies, len(found.runs)) == ((f"{name}-cpu",), 4)


def test_one_run_by_its_place(labs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "one.zip"
    assert main(["pack", "tiny/post/1", "--out", str(out), "--store", str(labs["a"]), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["runs"]) == 1 and found["studies"] == []
    merged = ablate.merge(out, store=tmp_path / "runs")
    assert list(merged.new) == found["runs"] and merged.studies == ()
