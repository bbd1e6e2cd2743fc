"""The store under torn files, foreign documents, kills and rivals."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from ablate.wings.search.documents import search_folder
from store import LockedError, Store, StoreError
from store.documents import ItemLoss
from store.files import replacing
from tests.documents import metrics_of, result_of, run_of
from tests.many import over
from tests.reports.factory import Arm, StudyOf

DIGEST = "a1b2c3"
RESULT = result_of(DIGEST)
PLAIN = RESULT.model_dump(mode="json", by_alias=True)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


def write_result(store: Store, content: bytes) -> None:
    path = store.result_path(DIGEST)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def write_metrics(store: Store, content: bytes) -> None:
    store.run_dir(DIGEST).mkdir(parents=True, exist_ok=True)
    store.metrics_path(DIGEST).write_bytes(content)


def subprocess_of(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE)


def test_layout_is_the_one_in_the_docs(store: Store) -> None:
    assert store.run_path("d") == store.root / "d" / "run.json"
    assert store.metrics_path("d") == store.root / "d" / "metrics.ndjson"
    assert store.model_dir("d") == store.root / "d" / "model"
    assert store.measure_path("d", "m") == store.root / "d" / "measure-m.json"
    assert store.samples_path("d", "e") == store.root / "d" / "evals-e.samples.ndjson"
    assert store.study("x", "cpu").document_path == store.root / "studies" / "x-cpu" / "study.json"
    assert search_folder(store, "x", "cpu").document_path == store.root / "searches" / "x-cpu" / "search.json"
    assert store.data("d").document_path == store.root / "data" / "d" / "meta.json"


@pytest.mark.parametrize("digest", ["", "..", "a/b", "../a", "studies", "data", "a b", ".x", "a\n"])
def test_what_cannot_be_a_digest_is_refused(store: Store, digest: str) -> None:
    with pytest.raises(StoreError):
        store.run_dir(digest)


def test_hostile_study_names_stay_inside_the_store_and_apart(store: Store) -> None:
    names = ["../../etc", "<script>alert(1)</script>", "a/b", "a%2Fb", "..", "a b"]
    folders = [store.study(name, "cpu").path for name in names]
    assert len(set(folders)) == len(names)
    assert {folder.resolve().parent for folder in folders} == {store.root.resolve() / "studies"}


def test_a_document_comes_back_as_written(store: Store) -> None:
    document = result_of(DIGEST, reason="é\u2028</script>", loss_spike_steps=(1, 2))
    store.write_result(document)
    assert store.read_result(DIGEST) == document
    assert [path.name for path in store.run_dir(DIGEST).iterdir()] == ["result.json"]
    plain = json.loads(store.result_path(DIGEST).read_text())
    assert (plain["schema"], plain["loss"], plain["loss_spike_steps"]) == (1, 2.5, [1, 2])


@pytest.mark.parametrize("value", [math.nan, math.inf, object(), "2.5"])
def test_what_is_not_strict_json_is_refused_and_leaves_the_old(store: Store, value: object) -> None:
    """Where it is made, and, of a copy that nothing checked, where it is written."""
    store.write_result(RESULT)
    with pytest.raises(ValidationError, match="loss"):
        result_of(DIGEST, loss=value)
    with pytest.raises(StoreError, match=r"result\.json"):
        store.write_result(RESULT.model_copy(update={"loss": value}))
    assert store.read_result(DIGEST) == RESULT


WHOLE = json.dumps(PLAIN).encode()


@over([b"", *[WHOLE[:n] for n in range(1, len(WHOLE), 7)], WHOLE[:-1], bytes(64)])
def test_half_written_results_are_never_read(content: bytes, store: Store) -> None:
    write_result(store, content)
    assert store.read_result(DIGEST) is None
    assert store.status(DIGEST) == "absent"


def test_constants_that_json_has_not_count_as_half_written(store: Store) -> None:
    write_result(store, json.dumps({**PLAIN, "loss": math.nan}).encode())
    assert store.read_result(DIGEST) is None
    write_result(store, json.dumps({**PLAIN, "reason": "Infinity and NaN as words"}).encode())
    found = store.read_result(DIGEST)
    assert found is not None and found.reason == "Infinity and NaN as words"


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_an_unknown_schema_is_an_error_that_names_it(store: Store, version: object) -> None:
    write_result(store, json.dumps({**PLAIN, "schema": version}).encode())
    with pytest.raises(StoreError, match=f"schema version {version!r}"):
        store.status(DIGEST)


@pytest.mark.parametrize("document", [{}, {key: value for key, value in PLAIN.items() if key != "schema"}])
def test_a_document_without_a_schema_is_an_error(store: Store, document: object) -> None:
    write_result(store, json.dumps(document).encode())
    with pytest.raises(StoreError, match="schema version None"):
        store.status(DIGEST)


MISFITS: list[tuple[dict[str, Any], str]] = [
    ({"tokens_per_second": {**PLAIN["tokens_per_second"], "median": "x"}}, "tokens_per_second.median: expected a number"
     ", not 'x'"),
    ({"steps": 1.5}, "steps: expected a whole number, not 1.5"),
    ({"flops": None}, "flops: expected a number, not null"),
    ({"peak_memory_bytes": -1}, "peak_memory_bytes: Input should be greater than or equal to 0, not -1"),
    ({"parameters": -1}, "parameters: Input should be greater than or equal to 0, not -1"),
    ({"flops_per_token": -1.0}, "flops_per_token: Input should be greater than or equal to 0, not -1.0"),
    ({"loss": "2.5"}, "loss: expected a number, not '2.5'"),
    ({"reason": 5}, "reason: expected text, not 5"),
    ({"environment": []}, "environment: expected a map, not []"),
    ({"loss_spike_steps": "1 2"}, "loss_spike_steps: expected a list, not '1 2'"),
    ({"loss_spike_steps": [1, "2"]}, "loss_spike_steps.1: expected a whole number, not '2'"),
    ({"status": "maybe"}, "status: expected 'finished' or 'diverged', not 'maybe'"),
    ({"lost": 1}, "lost: unknown field"),
    ({"digest": "other"}, f"digest: expected '{DIGEST}', not 'other'"),
    ({"reason": ["x" * 100]}, "reason: expected text, not ['" + "x" * 57 + "…"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "said"), MISFITS)
def test_what_does_not_fit_is_one_line_with_the_field_and_the_remedy(
    store: Store, changes: dict[str, Any], said: str
) -> None:
    write_result(store, json.dumps({**PLAIN, **changes}).encode())
    with pytest.raises(StoreError) as raised:
        store.read_result(DIGEST)
    remedy = f"remove {store.run_dir(DIGEST)} to train the run again"
    assert str(raised.value) == f"{store.result_path(DIGEST)}: {said}: {remedy}"


def test_a_missing_field_is_named(store: Store) -> None:
    write_result(store, json.dumps({"schema": 1, "digest": DIGEST}).encode())
    with pytest.raises(StoreError, match=r"result\.json: status: is missing: remove "):
        store.read_result(DIGEST)


def test_status_follows_the_documents(store: Store) -> None:
    assert store.status(DIGEST) == "absent"
    store.write_run(run_of(DIGEST))
    assert store.status(DIGEST) == "partial"
    for status in ("finished", "diverged"):
        store.write_result(result_of(DIGEST, status=status))
        assert store.status(DIGEST) == status


def test_listings(store: Store) -> None:
    assert store.runs() == [] == store.studies()
    store.write_run(run_of("b"))
    store.write_run(run_of("a"))
    (study,) = (store.study(name, "cpu") for name in ("x",))
    study.path.mkdir(parents=True)
    study.document_path.write_text("{}")
    (store.root / "studies" / "stray").mkdir()
    store.data("d").path.mkdir(parents=True)
    assert store.runs() == ["a", "b"]
    assert store.studies() == [study]
    assert Store.of_study(study.path).runs() == ["a", "b"]


def test_a_failed_replacement_leaves_nothing(store: Store) -> None:
    path = store.state_path(DIGEST)
    with pytest.raises(KeyboardInterrupt), replacing(path) as temporary:
        temporary.write_bytes(b"half")
        raise KeyboardInterrupt
    assert list(store.run_dir(DIGEST).iterdir()) == []


def test_folders_are_replaced_whole(store: Store) -> None:
    for name in ("old", "new"):
        with replacing(store.model_dir(DIGEST)) as temporary:
            temporary.mkdir()
            (temporary / name).write_text(name)
    assert [path.name for path in store.model_dir(DIGEST).iterdir()] == ["new"]


def test_metrics_come_back_in_order_with_nulls(store: Store) -> None:
    assert store.read_metrics(DIGEST).height == 0
    store.append_metrics(DIGEST, metrics_of(0, validation_loss=5.5))
    store.append_metrics(DIGEST, metrics_of(1, loss=5, grad_norm=math.inf), metrics_of(2, loss=math.nan, grad_norm=1.5))
    frame = store.read_metrics(DIGEST)
    assert frame["step"].to_list() == [0, 1, 2]
    assert frame["loss"].to_list() == [None, 5.0, None]
    assert frame["validation_loss"].to_list() == [5.5, None, None]
    assert frame["grad_norm"].to_list() == [None, None, 1.5]
    assert frame.schema == store.read_metrics("another").schema
    assert store.read_metrics(DIGEST, ["loss", "step"]).equals(frame.select("loss", "step"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"step": 2, "tokens": 16, "seconds": 1.0, "loss": "x"}', "loss: expected a number, not 'x'"),
        ('{"step": "2", "tokens": 16, "seconds": 1.0}', "step: expected a whole number, not '2'"),
        ('{"tokens": 16, "seconds": 1.0, "loss": 2.5}', "step: is missing"),
        ('{"step": null, "tokens": 16, "seconds": 1.0}', "step: expected a whole number, not null"),
        ("[1, 2]", "expected a JSON object"),
    ],
)
def test_a_line_of_other_types_is_an_error_that_names_it(store: Store, line: str, said: str) -> None:
    good = metrics_of(1, loss=5.0).model_dump_json(exclude_unset=True)
    write_metrics(store, "\n".join([good, line, good, ""]).encode())
    remedy = f"remove {store.run_dir(DIGEST)} to train the run again"
    for read in (store.read_metrics, lambda digest: store.truncate_logs(digest, 5)):
        with pytest.raises(StoreError) as raised:
            read(DIGEST)
        assert str(raised.value) == f"{store.metrics_path(DIGEST)}:2: {said}: {remedy}"


@pytest.mark.parametrize("torn", [b'{"step": 3, "lo', b"{", b"\x00\x00\x00"])
def test_a_torn_last_line_is_cut(store: Store, torn: bytes) -> None:
    store.append_metrics(DIGEST, metrics_of(1, loss=5.0))
    store.append_metrics(DIGEST, metrics_of(2, loss=4.0))
    with store.metrics_path(DIGEST).open("ab") as file:
        file.write(torn)
    assert store.read_metrics(DIGEST)["step"].to_list() == [1, 2]
    store.truncate_logs(DIGEST, 2)
    store.append_metrics(DIGEST, metrics_of(3, loss=3.0))
    assert store.read_metrics(DIGEST)["step"].to_list() == [1, 2, 3]


@pytest.mark.parametrize("before", [b"", b'{"step": 1, "tokens": 8, "seconds": 0.5}\n'])
def test_appending_cuts_a_torn_line_first(store: Store, before: bytes) -> None:
    write_metrics(store, before + b'{"step": 2, "lo')
    store.append_metrics(DIGEST, metrics_of(2))
    added = store.metrics_path(DIGEST).read_bytes().removeprefix(before)
    assert added.startswith(b'{"step":2,"tokens":16,"seconds":1.0,"seal":"')
    assert added.endswith(b'"}\n') and added.count(b"\n") == 1
    assert len(store.read_metrics(DIGEST)) == before.count(b"\n") + 1


def test_a_broken_line_in_the_middle_is_an_error(store: Store) -> None:
    write_metrics(store, b'{"step": 1, "tokens": 8, "seconds": 0.5}\n{"st\n{"step": 3, "tokens": 8, "seconds": 0.5}\n')
    with pytest.raises(StoreError, match=r"metrics\.ndjson:2"):
        store.read_metrics(DIGEST)


def test_truncating_drops_what_came_after_the_checkpoint(store: Store) -> None:
    store.truncate_logs(DIGEST, 0)
    for step in range(6):
        store.append_metrics(DIGEST, metrics_of(step))
    store.truncate_logs(DIGEST, 3)
    assert store.read_metrics(DIGEST)["step"].to_list() == [0, 1, 2, 3]


HOLD = """
import sys, time
from store import Store
with Store(sys.argv[1]).claim(sys.argv[2]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_claim_excludes_and_dies_with_its_process(store: Store) -> None:
    holder = subprocess_of(HOLD, str(store.root), DIGEST)
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LockedError, match=DIGEST), store.claim(DIGEST, blocking=False):
            pass
        with store.claim("another", blocking=False):
            pass
        holder.kill()
    (store.run_dir(DIGEST) / ".result.json.0000.tmp").write_bytes(b"{")
    with store.claim(DIGEST):
        assert [path.name for path in store.run_dir(DIGEST).iterdir()] == ["claim"]
    assert not store.run_dir(DIGEST).exists()
    assert store.status(DIGEST) == "absent"


def test_a_full_disk_is_named_with_the_file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store.state_path(DIGEST)
    said = re.escape(f"[Errno 28] No space left on device: '{path}'")
    with pytest.raises(OSError, match=said), replacing(path) as temporary:
        temporary.symlink_to("/dev/full")
        temporary.write_bytes(b"x")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(OSError, match=said), replacing(path):
        raise RuntimeError("unexpected pos 576 vs 534")
    with pytest.raises(StoreError, match="not strict"), replacing(path):
        raise StoreError("not strict JSON")
    assert not list(store.run_dir(DIGEST).iterdir())


HAMMER = """
import itertools, sys
from store import Store
from tests.documents import metrics_of, result_of
store, digest = Store(sys.argv[1]), sys.argv[2]
for n in itertools.count():
    store.write_result(result_of("ended", steps=n, loss_spike_steps=(n,) * 2000))
    store.append_metrics(digest, metrics_of(n, loss=n))
    print("going", flush=True)
"""


def test_sigkill_amid_writes_leaves_whole_documents_only(store: Store) -> None:
    for kill in range(6):
        writer = subprocess_of(HAMMER, str(store.root), DIGEST)
        assert writer.stdout is not None
        with writer:
            assert writer.stdout.readline() == b"going\n"
            time.sleep(0.05 + 0.013 * kill)
            os.kill(writer.pid, signal.SIGKILL)
        result = store.read_result("ended")
        assert result is not None
        assert result.loss_spike_steps == (result.steps,) * 2000
        steps = store.read_metrics(DIGEST)["step"].to_list()
        assert steps[-1] in {result.steps, result.steps - 1}


def test_importing_the_store_loads_no_heavy_library() -> None:
    code = "import sys, store; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "polars", "numpy", "pydantic"} & set(modules.stdout.split())


LOSSES = [ItemLoss(item=item, nats=2.5 * item, targets=8, bytes=None if item else 30) for item in range(3)]


def test_losses_of_many_runs_are_those_of_each(store: Store) -> None:
    for digest, losses in {"one": LOSSES, "none": [], "two": LOSSES[:2]}.items():
        store.write_result(result_of(digest), losses)
    digests = ["two", "none", "one", "absent"]
    frame, counts = store.read_many_losses(digests, ["nats", "bytes"])
    each = [store.read_losses(digest) or [] for digest in digests]
    assert counts == [len(losses) for losses in each] == [2, 0, 3, 0]
    assert frame.rows() == [(loss.nats, loss.bytes) for losses in each for loss in losses]


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "is gone: remove"), (b"", "its checksum does not match: remove"), (b"{}\n", "its checksum does not match")],
)
def test_losses_that_changed_are_refused(store: Store, content: bytes | None, said: str) -> None:
    store.write_result(result_of(DIGEST), LOSSES)
    path = store.losses_path(DIGEST)
    path.unlink() if content is None else path.write_bytes(content)
    for read in (store.read_losses, lambda digest: store.read_many_losses([digest], ["nats"])):
        with pytest.raises(StoreError, match=f"{path}.*{said}"):
            read(DIGEST)


@pytest.mark.parametrize("end", [b'{"item": 3, "nats": 1', b'{"item": 3, "nats": 1}\n'])
def test_losses_without_a_checksum_are_whole_or_refused(store: Store, end: bytes) -> None:
    """They are written at once: what is torn at the end of a log is damage here."""
    path = store.losses_path(DIGEST)
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"item": 0, "nats": 1.0, "targets": 8, "bytes": 3}\n' + end)
    for read in (store.read_losses, lambda digest: store.read_many_losses([digest], ["nats", "targets"])):
        with pytest.raises(StoreError, match=f"{path}:2: "):
            read(DIGEST)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
def test_whole_numbers_of_documents_and_records_have_64_bits(number: int, store: Store) -> None:
    """Frames have no place for more: a command that reads one would end with a traceback."""
    write_result(store, json.dumps(PLAIN | {"steps": number}).encode())
    with pytest.raises(StoreError, match=r"result\.json: a whole number has more than 64 bits"):
        store.read_result(DIGEST)
    write_result(store, json.dumps(PLAIN | {"tokens": 2**63 - 1, "flops": 10**30}).encode())
    found = store.read_result(DIGEST)
    assert found is not None and (found.tokens, found.flops) == (2**63 - 1, 1e30)
    store.metrics_log(DIGEST).add([json.dumps(metrics_of(1).model_dump() | {"step": number}).encode()])
    with pytest.raises(StoreError, match=r"metrics\.ndjson:1: a whole number has more than 64 bits"):
        store.read_metrics(DIGEST)


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2026-01-01", "2026-01-01T00:00:00", "9999-12-31T23:59:59-01:00", "2026-02-30T00:00:00+00:00"],
)
def test_times_of_documents_are_times(text: str, store: Store) -> None:
    """Sealed or not: commands that compared them ended with a traceback."""
    write_result(store, json.dumps(PLAIN | {"finished": text}).encode())
    with pytest.raises(
        StoreError,
        match=rf"result\.json: finished: expected an ISO 8601 time with a time zone, not '{re.escape(text)}'",
    ):
        store.read_result(DIGEST)


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("`baseline` names an arm that does not exist", {"baseline": "none"}),
        ("`contrasts` names an arm that does not exist", {"contrasts": [{"arm": "a", "other": "none"}]}),
        ("`claims` names an arm that does not exist", {"claims": [{"order": ["a", "none"], "planned": "2026-01-01"}]}),
        ("`baseline` names an arm that does not exist", {"arms": []}),
        ("arms are missing, or two have the same name", {"arms": 2}),
    ],
)
def test_names_in_a_study_are_of_its_arms(said: str, wrong: dict[str, Any], store: Store) -> None:
    document = StudyOf([Arm("a", []), Arm("b", [])]).document().model_dump(mode="json", by_alias=True)
    if wrong.get("arms") == 2:
        wrong = {"arms": [document["arms"][0], *document["arms"]]}
    folder = store.study("x", "cpu")
    folder.path.mkdir(parents=True)
    folder.document_path.write_text(json.dumps(document | wrong))
    with pytest.raises(StoreError, match=rf"study\.json: {said}: remove it"):
        folder.read()


@pytest.mark.parametrize("number", ["1e300", "-1.5e+151", "9" * 160 + ".0"])
def test_numbers_of_documents_are_no_larger_than_can_be_computed_with(number: str, store: Store) -> None:
    """The square of 1e300 is infinite, which ended reports with a traceback."""
    text = json.dumps(PLAIN | {"bits_per_byte": 0.25})
    write_result(store, text.replace("0.25", number).encode())
    with pytest.raises(StoreError, match=r"result\.json: .* a number exceeds 1e\+150: "):
        store.read_result(DIGEST)
    write_result(store, text.replace("0.25", "1e150").encode())
    assert store.read_result(DIGEST) is not None
