"""Text behind a network that does not answer: a plan says what runs cost, a run is refused."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants

import ablate
from tests.data.test_sources import ask_again

STUDY = {
    "question": "Fewer kv heads?",
    "baseline": "mha",
    "base": {"preset": "small", "d_model": 8, "n_layers": 1, "block.mixer.heads": 2},
    "arms": {"mqa": {"block.mixer.kv_heads": 1}},
    "data": {"source": "hf", "path": "someone/texts", "tokenizer": {"kind": "bpe", "vocab_size": 512}},
    "train": {"context": 16, "batch": 2},
    "budget": {"tokens": 4096},
    "tune": "off",
    "seeds": 2,
}


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    ask_again()
    yield
    ask_again()


class _NotFound(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass


def nowhere() -> int:
    """A port at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def point_at(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")


def test_a_plan_needs_no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    point_at(monkeypatch, nowhere())
    plan = ablate.plan(STUDY, store=tmp_path, progress=False)
    assert plan.arms["tokens"].to_list() == [4096, 4096]
    assert plan.planned[0].spec.vocab_size == 512
    notes = "\n".join(plan.notes())
    assert "cannot read someone/texts from the Hugging Face Hub" in notes
    assert f"4 runs, an unknown number of which are in {tmp_path}/ already: a text could not be read" in notes
    assert plan.document()["unread"] == list(plan.unread) != []


def test_a_run_needs_the_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    point_at(monkeypatch, nowhere())
    with pytest.raises(ablate.StudyError, match="data: cannot read someone/texts from the Hugging Face Hub"):
        ablate.run(STUDY, store=tmp_path, progress=False)
    assert not list(tmp_path.glob("*/run.json"))


def test_a_dataset_that_the_hub_does_not_know_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), _NotFound) as server:
        answering = threading.Thread(target=server.serve_forever)
        answering.start()
        try:
            point_at(monkeypatch, server.server_port)
            with pytest.raises(ablate.StudyError, match="data: cannot read someone/texts"):
                ablate.plan(STUDY, store=tmp_path, progress=False)
        finally:
            server.shutdown()
            answering.join()
