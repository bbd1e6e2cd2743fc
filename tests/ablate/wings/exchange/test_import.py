"""`ablate import`: a model from elsewhere is a run of the store, with the numbers that transformers has."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

import ablate
import zoo
from ablate.cli import main
from ablate.data import Corpus, open_corpus
from ablate.data.corpus import Examples
from ablate.data.tokenizers.bytes import byte_tokenizer
from store import Store
from tests.reports.browsing import data_of
from tests.zoo.hf import parity
from tests.zoo.hf.test_adapters import FAMILIES

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama with a tokenizer of bytes."""
    folder = tmp_path_factory.mktemp("elsewhere") / "llama"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(LlamaConfig(vocab_size=257, **SIZES))
    model.to(torch.bfloat16).save_pretrained(folder)
    eos = byte_tokenizer().id_to_token(256)
    PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer(), eos_token=eos).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def said() -> list[str]:
    """Lines of the import."""
    return []


@pytest.fixture(scope="module")
def imported(
    folder: Path, study: Path, trained: Path, said: list[str], tmp_path_factory: pytest.TempPathFactory
) -> ablate.Imported:
    """Beside the tiny study, which read the same text."""
    store = shutil.copytree(trained, tmp_path_factory.mktemp("imports") / "runs")
    costs = {"contexts": [16], "batches": [1], "seconds": 0.01}
    asked: dict[str, Any] = {"tasks": ["heldout_text"], "limit": 2, "progress": said.append}
    return ablate.import_model(folder, study=study, measure=costs, store=store, **asked)


MISTAKES = {
    "task": ["--tasks", "heldout_pears"],
    "binary task file": ["--tasks", "binary.yaml"],
    "task file of something else": ["--tasks", "list.yaml"],
    "task file that names none": ["--tasks", "{}.yaml"],
    "deep task file": ["--tasks", "deep.yaml"],
    "data": ["--data", "blimp=nowhere"],
    "folder": ["--include", "nowhere"],
    "few shots": ["--tasks", "heldout_text", "--fewshot", "-3"],
    "positions": ["--positions", "0"],
    "a long context": ["--context", "9000"],
    "a context of 64 bits": ["--context", "99999999999999999999"],
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_before_anything_is_written(
    mistake: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("binary.yaml").write_bytes(bytes(range(256)))
    Path("deep.yaml").write_text("[" * 100_000)
    Path("list.yaml").write_text("- task: x\n")
    Path("{}.yaml").write_text("{}")
    Path("text.txt").write_text("\n".join(f"line {number} of the text" for number in range(900)))
    before = {path.name for path in tmp_path.iterdir()}
    words = ["import", str(folder), "--text", "text.txt", "--context", "16", "--no-measure", *MISTAKES[mistake]]
    try:
        status = main([*words, "--store", "new/runs"])
    except SystemExit as end:
        status = end.code
    said = capsys.readouterr().err
    assert status == 2 and "Traceback" not in said and said.strip(), said
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == before


def test_it_says_what_it_does(imported: ablate.Imported, said: list[str]) -> None:
    assert said[-1] == "llama: reading held-out text"


@pytest.fixture
def store(imported: ablate.Imported) -> Store:
    assert imported.scores is not None
    return Store(imported.store)


def test_loss_is_that_of_transformers(imported: ablate.Imported, store: Store, folder: Path) -> None:
    run = store.read_run(imported.digest)
    assert run is not None
    corpus = open_corpus(store.data(run.data.digest).path)
    assert isinstance(corpus, Corpus)
    (rows,) = corpus.held_out_rows("test", 32)
    assert not isinstance(rows.rows, Examples)
    windows = torch.as_tensor(rows.rows)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        nats = F.cross_entropy(theirs(windows[:, :-1]).logits.flatten(0, 1), windows[:, 1:].flatten()).item()
    assert imported.result.loss == pytest.approx(nats, abs=1e-4)
    assert rows.sizes is not None
    bits = nats * windows[:, 1:].numel() / (rows.sizes[:, 1:].sum() * math.log(2))
    assert imported.result.bits_per_byte == pytest.approx(bits, abs=1e-4)
    assert (run.steps, imported.result.flops, imported.result.tokens_per_second) == (0, 0.0, None)


def test_measured_and_evaluated_like_any_run(imported: ablate.Imported, store: Store) -> None:
    assert imported.measured is not None
    assert (
        imported.measured.kv_bytes_per_token
        == zoo.cost(zoo.open(store.model_dir(imported.digest)).spec).cache_bytes(1, 1024) / 1024
    )
    more = ablate.evaluate("llama", store=store.root, positions={"multiples": [1], "tokens": 64})
    assert more.digest == imported.digest
    assert more.frame["value"][0] > 4
    assert ablate.generate("llama", "norm", tokens=2, store=store.root)[0].text.startswith("norm")


def test_a_folder_is_evaluated_as_the_run_that_was_made_of_it(
    imported: ablate.Imported, store: Store, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["eval", str(folder), "--tasks", "heldout_text", "--limit", "2", "--store", str(store.root), "--json"]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["digest"] == imported.digest
    assert imported.scores is not None
    assert found["scores"] == imported.scores.document()["scores"]


def test_reports_show_it_without_a_verdict(imported: ablate.Imported, store: Store) -> None:
    index = ablate.report(store.root).read_text()
    assert "Imported models" in index
    assert f"{imported.result.bits_per_byte:.3f}" in index
    page = store.trade_offs_path.read_text()
    figure = data_of(page)["figures"]["imports-0"]
    names = [trace["name"] for trace in figure["data"]]
    assert names == ["tiny: pre", "tiny: post", "llama"]
    assert [trace["marker"]["symbol"] for trace in figure["data"]] == ["circle", "circle", "star-diamond"]
    assert figure["data"][2]["y"] == [pytest.approx(imported.result.bits_per_byte, rel=1e-5)]
    assert figure["data"][2]["x"] == [imported.result.parameters]
    assert store.read_ledger("tiny") and not any("llama" in str(record) for record in store.read_ledger("tiny"))


def test_check_names_what_is_damaged(imported: ablate.Imported, store: Store, tmp_path: Path) -> None:
    copy = Store(shutil.copytree(store.root, tmp_path / "runs"))
    assert ablate.check(copy.root) == []
    path = copy.import_path("llama")
    path.write_text(path.read_text().replace("llama", "alpaca", 1))
    weights = copy.model_dir(imported.digest) / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    damages = ablate.check(copy.root)
    assert any(str(path) in line and "import the model again" in line for line in damages)
    assert any(str(weights) in line and line.endswith("to import the model again") for line in damages)


@pytest.mark.parametrize("arm", [pytest.param("pre", marks=pytest.mark.slow), "post"])
def test_an_exported_run_has_the_same_numbers_when_it_is_imported(
    arm: str, trained: Path, study: Path, store: Store, tmp_path: Path
) -> None:
    """One that transformers has a family for, and one that has a modeling file of ours."""
    run = ablate.open(trained).result("tiny").runs.filter(arm=arm)["digest"][0]
    folder = tmp_path / arm
    kind = ablate.export(run, folder, store=trained)["model_type"]
    assert (kind == "ablate") is (arm == "post")
    asked = {"positions": {"multiples": [1], "tokens": 64}}
    again = ablate.import_model(folder, study=study, measure=False, store=store.root, **asked)
    result = Store(trained).read_result(run)
    assert result is not None
    assert again.result.loss == pytest.approx(result.loss, rel=1e-5)
    assert again.result.bits_per_byte == pytest.approx(result.bits_per_byte, rel=1e-5)
    before = ablate.evaluate(run, store=shutil.copytree(trained, tmp_path / "runs"), **asked).frame
    assert again.scores is not None
    assert again.scores.frame["value"].to_list() == pytest.approx(before["value"].to_list(), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_of_each_family_comes_back_with_the_same_logits_and_evaluations(
    family: str, study: Path, tmp_path: Path
) -> None:
    """From transformers to a run, from the run to transformers, and from there to a run of another store."""
    config = parity.draw(family, 0)
    config.vocab_size = 257
    for name in ("max_position_embeddings", "n_positions"):
        if hasattr(config, name):
            setattr(config, name, 64)
    theirs = parity.hf_model(config)
    theirs.save_pretrained(tmp_path / "theirs")
    byte_tokenizer().save(str(tmp_path / "theirs" / "tokenizer.json"))

    def taken_in(folder: str, store: str) -> ablate.Imported:
        asked = {"tasks": ["heldout_text"], "limit": 2, "positions": {"multiples": [1], "tokens": 64}}
        return ablate.import_model(tmp_path / folder, study=study, measure=False, store=tmp_path / store, **asked)

    first = taken_in("theirs", "first")
    exported = ablate.export(first.digest, tmp_path / "ours", store=tmp_path / "first")
    assert exported["model_type"] == config.model_type
    tokens = parity.tokens_for(config, 2)
    with torch.no_grad():
        ours = parity.eager(AutoModelForCausalLM.from_pretrained(tmp_path / "ours", dtype=torch.float32)).eval()
        parity.assert_near(ours(tokens).logits, theirs(tokens).logits)
    again = taken_in("ours", "second")
    assert again.result.loss == pytest.approx(first.result.loss, rel=1e-5)
    assert first.scores is not None and again.scores is not None
    values = [scores.frame["value"].to_list() for scores in (first.scores, again.scores)]
    assert len(values[0]) > 1 and values[1] == pytest.approx(values[0], rel=1e-4)


def test_a_saved_import_keeps_its_tokenizer(folder: Path, tmp_path: Path) -> None:
    zoo.save(zoo.from_hf(folder), tmp_path / "saved")
    again = zoo.open(tmp_path / "saved")
    zoo.save(again, tmp_path / "twice")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "twice" / name).read_bytes() == (folder / name).read_bytes()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tmp_path / "twice")
    assert tokenizer("naïve")["input_ids"] == byte_tokenizer().encode("naïve").ids


def test_what_cannot_be_imported_is_one_line(folder: Path, study: Path, tmp_path: Path) -> None:
    bare = shutil.copytree(folder, tmp_path / "bare")
    (bare / "tokenizer.json").unlink()
    with pytest.raises(ablate.CheckpointError, match="has no tokenizer"):
        ablate.import_model(bare, store=tmp_path / "runs")
    with pytest.raises(ablate.ArgumentError, match="text: cannot be combined with a study"):
        ablate.import_model(folder, study=study, text=["a.txt"], store=tmp_path / "runs")
    with pytest.raises(ablate.ArgumentError, match="scale: needs a study"):
        ablate.import_model(folder, scale="cpu", store=tmp_path / "runs")
    with pytest.raises(ablate.DataError, match="no file matches"):
        ablate.import_model(folder, text=["nowhere/*.txt"], store=tmp_path / "runs")
    assert main(["import", str(tmp_path / "nowhere"), "--store", str(tmp_path / "runs")]) == 2
