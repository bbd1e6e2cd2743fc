"""A registered study: its report says whether that came before the first run, and what has changed since."""

from __future__ import annotations

import hashlib
import json
import re
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import ablate
from ablate.cli import main
from ablate.study.reading import load_study
from ablate.wings.science.registering import changes, registration
from store import Store


def report_of(study: Path, store: Path, **sets: object) -> str:
    """Line of the report on the registration, after the study was run with these edits."""
    result = ablate.run(study, store=store, sets=sets, progress=False, engine="inprocess")
    assert result.report is not None
    (line,) = re.findall(r'<p class="source">(Registered .*?)</p>', result.report.read_text()) or [""]
    assert not line or any(note.startswith("Registered ") for note in result.notes())
    return line


def test_before_the_first_run_and_unchanged(study: Path, tmp_path: Path) -> None:
    store = tmp_path / "runs"
    found = ablate.register(study, store=store)
    assert (found.is_new, found.ended) == (True, 0)
    said = report_of(study, store)
    assert re.fullmatch(
        rf"Registered on \S+ \S+ UTC, before its first run, and unchanged since \(SHA-256 {found.sha256}\).", said
    )
    again = ablate.register(study, store=store)
    assert (again.sha256, again.at, again.is_new, again.ended) == (found.sha256, found.at, False, 4)


def test_what_changed_since_is_named(study: Path, tmp_path: Path) -> None:
    store = tmp_path / "runs"
    ablate.register(study, store=store)
    said = report_of(study, store, margin=0.05, seeds=[0, 1, 2], claims=[{"arm": "post", "expect": "worse"}])
    assert "before its first run; changed since: " in said
    assert "margin: null, now 0.05" in said and "seeds: [0, 1], now [0, 1, 2]" in said and "claims: []" in said


def test_an_arm_that_is_edited_added_or_gone_is_named(study: Path, tmp_path: Path) -> None:
    found = ablate.register(study, store=tmp_path / "runs")
    other = study.with_name("other.yaml")
    other.write_text(study.read_text().replace("arms:\n", "arms:\n  new: {block.norm: layernorm}\n"))
    now = registration(load_study(other, "cpu", ["arms.post.d_model=24", "base.n_layers=2"])).content
    other.unlink()
    lines = list(changes(found.content, now))
    assert "arms.new: added" in lines
    assert "arms.post.model.d_model: 16, now 24" in lines
    assert any(line.startswith("arms.pre.model.layers: ") for line in lines)
    assert "arms.new: removed" in list(changes(now, found.content))
    assert list(changes(found.content, found.content)) == []


def test_after_the_first_run(study: Path, tmp_path: Path) -> None:
    store = tmp_path / "runs"
    assert report_of(study, store) == ""
    found = ablate.register(study, store=store)
    assert found.ended == 4
    assert "after its first run, which began on" in report_of(study, store)


def test_the_last_registration_before_the_first_run_counts(study: Path, tmp_path: Path) -> None:
    """A plan may be corrected until it runs; one that follows the results is not what was registered."""
    store = tmp_path / "runs"
    folder, now = Store(store).study("tiny", "cpu"), datetime.now(UTC)
    plans = [load_study(study, "cpu", [f"margin={margin}"]) for margin in (0.3, 0.4, 0.5)]
    moments = [now - timedelta(hours=2), now - timedelta(hours=1), now + timedelta(hours=1)]
    records = [registration(plan, at) for plan, at in zip(plans, moments, strict=True)]
    folder.registrations.append(records)
    said = report_of(study, store, margin=0.5)
    assert records[1].sha256 in said and "margin: 0.4, now 0.5" in said


def test_the_hash_is_of_the_published_text_and_needs_no_network(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    options = ["--store", str(tmp_path / "runs"), "--out", str(tmp_path / "plan.json")]
    assert main(["register", str(study), *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    text = (tmp_path / "plan.json").read_bytes()
    assert hashlib.sha256(text).hexdigest() == found["sha256"]
    assert json.loads(text) == found["content"]
    assert {"question", "arms", "claims", "margin", "seeds", "rules", "budget"} <= found["content"].keys()
    assert main(["register", str(study), *options]) == 0
    assert f"sha256 {found['sha256']}" in capsys.readouterr().out
    assert not (tmp_path / "runs" / "data").exists()


def test_a_registration_travels_and_a_forged_one_is_refused(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "runs"
    found = ablate.register(study, store=store)
    report_of(study, store)
    ablate.merge(ablate.pack("tiny", out=tmp_path / "a.zip", store=store).path, store=tmp_path / "there")
    there = Store(tmp_path / "there").study("tiny", "cpu")
    assert [each.sha256 for each in there.registrations.records()] == [found.sha256]
    log = Store(store).study("tiny", "cpu").registrations
    (record,) = log.records()
    log.append([record.model_copy(update={"sha256": "0" * 64})])
    assert main(["pack", "tiny", "--out", str(tmp_path / "b.zip"), "--store", str(store)]) == 2
    assert "`sha256` does not match `content`" in capsys.readouterr().err
    assert not (tmp_path / "b.zip").exists()
