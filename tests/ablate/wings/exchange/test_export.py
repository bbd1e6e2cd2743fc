"""`ablate export`: what transformers opens is what was trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoModelForCausalLM, AutoTokenizer

import ablate
import zoo
from ablate.cli import main
from ablate.data.tokenizers.bytes import byte_tokenizer
from store import Store
from store.documents import RunData
from tests.ablate.wings.generate.test_generate import DIGEST, with_run
from tests.documents import run_of


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """One finished run of a model of 257 tokens, without its corpus."""
    return with_run(Store(tmp_path / "runs"), {})


def test_logits_and_tokens_are_the_same(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "hf"
    assert main(["export", DIGEST[:6], str(folder), "--store", str(store.root), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["digest"] == DIGEST
    theirs, words = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    ids = words("naïve text")["input_ids"]
    assert ids == byte_tokenizer().encode("naïve text").ids
    assert (words.eos_token_id, theirs.config.eos_token_id) == (256, 256)
    tokens = torch.tensor([ids])
    ours = zoo.open(store.model_dir(DIGEST))
    with torch.no_grad():
        torch.testing.assert_close(theirs(tokens).logits, ours(tokens), rtol=1e-4, atol=1e-5)


def test_what_transformers_lacks_has_a_modeling_file(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_run(store, {"block.norm": "dyt"})
    folder = tmp_path / "hf"
    assert main(["export", DIGEST, str(folder), "--store", str(store.root)]) == 0
    line = capsys.readouterr().out
    assert "trust_remote_code=True" in line and "norm" in line
    theirs, words = (
        AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True),
        AutoTokenizer.from_pretrained(folder),
    )
    tokens = torch.tensor([words("naïve text")["input_ids"]])
    with torch.no_grad():
        torch.testing.assert_close(theirs(tokens).logits, zoo.open(store.model_dir(DIGEST))(tokens))
    assert (theirs.config.eos_token_id, words.eos_token_id) == (256, 256)


def test_a_model_that_no_modeling_file_serves_is_one_line(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_run(store, {"block.norm": "dyt", "visible": "all"})
    assert main(["export", DIGEST, str(tmp_path / "hf"), "--store", str(store.root)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ablate: {DIGEST}: the model is an encoder") and "causal" in line
    assert not (tmp_path / "hf").exists()


def test_the_card_says_what_the_run_is(store: Store, tmp_path: Path) -> None:
    ablate.export(DIGEST, tmp_path / "hf", store=store.root)
    card = ModelCard.load(tmp_path / "hf" / "README.md")
    assert (card.data.library_name, card.data.tags) == ("transformers", ["ablate"])
    for text in ("| held-out loss | 2.5000 nats", "| bits per byte | 1.9000 |", "40,960 tokens in 20 steps", DIGEST):
        assert text in card.text


class FakeHub:
    """Stand-in for `huggingface_hub.HfApi` that records what it was asked."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[tuple[str, dict[str, object]]] = []
        self.error = error

    def create_repo(self, repository: str, **settings: object) -> None:
        if self.error:
            raise self.error
        self.asked.append((repository, settings))

    def upload_folder(self, **settings: object) -> None:
        self.asked.append(("upload", settings))


def test_a_folder_is_pushed_when_asked(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = FakeHub()
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: hub)
    ablate.export(DIGEST, tmp_path / "quiet", store=store.root)
    assert hub.asked == []
    ablate.export(DIGEST, tmp_path / "hf", store=store.root, push="me/mine")
    assert hub.asked[0] == ("me/mine", {"private": True, "exist_ok": True})
    assert hub.asked[1][1]["repo_id"] == "me/mine"
    assert hub.asked[1][1]["folder_path"] == str(tmp_path / "hf")


def test_a_hub_that_refuses_is_one_line(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: FakeHub(ConnectionError("no network")))
    arguments = ["export", DIGEST, str(tmp_path / "hf"), "--store", str(store.root), "--push", "me/mine"]
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ablate: --push me/mine: no network") and "is written" in line
    assert (tmp_path / "hf" / "config.json").exists()


def test_nothing_is_overwritten(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["export", DIGEST, str(tmp_path), "--store", str(store.root)]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_nothing_is_written_where_the_card_cannot_be_read(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = store.run_dir(DIGEST) / "evals-aa.json"
    scores.write_text('{"scores": 3}')
    try:
        assert main(["export", DIGEST, str(tmp_path / "hf"), "--store", str(store.root)]) == 2
    finally:
        scores.unlink()
    assert "evals-aa.json" in capsys.readouterr().err
    assert not (tmp_path / "hf").exists()


def test_the_plan_says_what_each_arm_becomes(study: Path, tmp_path: Path) -> None:
    plan = ablate.plan(study, store=tmp_path, device="cpu")
    pre, post = (arm["export"] for arm in plan.document()["arms"])  # type: ignore[union-attr]
    assert pre == {"model_type": "granite", "reason": None}
    assert post["model_type"] == "ablate" and "norm_placement" in post["reason"]
    (line,) = (note for note in plan.notes(details=True) if note.startswith("exports: "))
    assert line.startswith("exports: pre as granite; post with ablate's modeling file")


def test_a_run_whose_plugin_is_missing_says_which(store: Store, tmp_path: Path) -> None:
    store.write_run(run_of(DIGEST, data=RunData(digest="gone"), plugins={"norms.maxnorm": "934767b0bdc97e3d"}))
    with pytest.raises(
        ablate.AblateError, match=r"norms\.maxnorm, which is missing here .* give it with --plugin FILE"
    ):
        ablate.export(DIGEST, tmp_path / "hf", store=store.root)
