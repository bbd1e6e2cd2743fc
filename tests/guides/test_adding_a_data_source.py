"""The source of docs/adding_a_data_source.md, dropped into its folder: one file, and its text is split and learnt."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guides.guide import followed

STUDY = """
question: Does width matter?
base: {preset: small, d_model: 16, n_layers: 1, block.mixer.heads: 2}
arms: {wide: {d_model: 24}}
seeds: 1
data: {source: mbox, path: inbox.mbox, subject: true, validation_tokens: 64}
train: {context: 16, batch: 4, lr: 1e-2}
budget: {tokens: 640}
measure: null
tune: off
evals: null
"""
MESSAGES = {
    f"Number {i}": f"The sum of {i} and {i + 1} is {2 * i + 1}, and that of {i} twice is {2 * i}." for i in range(40)
}
PROGRAM = """
import contextlib, io
from pathlib import Path
from ablate.cli import main
from ablate.data import parse, prepare

source = {"source": "mbox", "path": "inbox.mbox", "subject": True, "validation_tokens": 64}
found = list(parse(source).documents(Path()))
digests = [prepare(parse(source | edit), Path("data")).meta.digest for edit in ({}, {}, {"subject": False})]
with contextlib.redirect_stdout(io.StringIO()) as out:
    assert main(["run", "mail.yaml", "--scale", "cpu", "--engine", "inprocess", "--json"]) == 0
with contextlib.redirect_stderr(io.StringIO()) as lost:
    refused = main(["plan", "mail.yaml", "--scale", "cpu", "--set", "data.path=no.mbox"])
print(json.dumps({
    "found": found,
    "digests": digests,
    "losses": [arm["loss"] for arm in json.loads(out.getvalue())["arms"]],
    "refused": [refused, lost.getvalue()],
}))
"""
HTML = "Content-Type: text/html\n\n<p>left out</p>"


@pytest.mark.slow
def test_a_dropped_file_is_split_and_learnt(tmp_path: Path) -> None:
    messages = [f"Subject: {subject}\n\n{body}" for subject, body in MESSAGES.items()]
    mailbox = "\n\n".join(f"From me@example.org Thu Jan  1 00:00:00 2026\n{text}" for text in [*messages, HTML])
    (tmp_path / "inbox.mbox").write_text(f"{mailbox}\n", encoding="utf-8")
    (tmp_path / "mail.yaml").write_text(STUDY, encoding="utf-8")
    said = followed("adding_a_data_source.md", tmp_path, PROGRAM)
    assert [text.strip() for text in said["found"]] == [f"{subject}\n\n{body}" for subject, body in MESSAGES.items()]
    first, again, bare = said["digests"]
    assert first == again != bare
    assert all(0 < loss < 6 for loss in said["losses"])
    status, line = said["refused"]
    assert status == 2
    assert line.splitlines()[-1] == f"ablate: mail.yaml:6:7: data: path: there is no mailbox {tmp_path / 'no.mbox'}"
