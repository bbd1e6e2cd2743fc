"""Studies whose arms start from a checkpoint of transformers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

import ablate
import zoo
from ablate.data import Corpus, open_corpus
from ablate.data.corpus import Examples
from ablate.data.tokenizers.bytes import byte_tokenizer
from ablate.wings.starts.checkpoints import Checkpoint, CheckpointError
from store import Store

STUDY = """
question: Does a converted model lose anything?
base: {checkpoint: llama}
arms:
  gqa: {block.mixer.kv_heads: 2}
  window: {block.mixer.window: 8, start.fraction: 0.5}
  scratch: {start: {checkpoint: null}}
  again: {block.mixer.kv_heads: 1, start: {arm: base, checkpoint: null, fraction: 0.5}}
data: {source: files, paths: ["texts/*.txt"], validation_tokens: 256, validation_fraction: 0.15}
train: {context: 32, batch: 4, lr: 1e-3}
seeds: 1
tune: off
budget: {tokens: 512}
measure: null
evals: null
"""


@pytest.fixture(scope="module")
def folder(study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study beside a bfloat16 Llama in shards, with a tokenizer of bytes."""
    folder = tmp_path_factory.mktemp("checkpoints")
    shutil.copytree(study.parent / "texts", folder / "texts")
    (folder / "up.yaml").write_text(STUDY)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(LlamaConfig(vocab_size=264, **sizes))
    text = (folder / "texts" / "0.txt").read_bytes()
    tokens, optimizer = torch.tensor([list(text[:128])]), torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(20):
        model(tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.to(torch.bfloat16).save_pretrained(folder / "llama", max_shard_size="20KB")
    eos = byte_tokenizer().id_to_token(256)
    PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer(), eos_token=eos).save_pretrained(folder / "llama")
    return folder


@pytest.fixture(scope="module")
def result(folder: Path) -> Any:
    return ablate.run(folder / "up.yaml", store=folder / "runs", engine="inprocess")


def test_training_starts_at_the_loss_that_transformers_has(result: Any, folder: Path) -> None:
    store = Store(folder / "runs")
    (digest,) = result.runs.filter(arm="base")["digest"]
    run = store.read_run(digest)
    assert run is not None
    corpus = open_corpus(store.data(run.data.digest).path)
    assert isinstance(corpus, Corpus)
    rows = [each.rows for each in corpus.held_out_rows("judging", 32)]
    model = AutoModelForCausalLM.from_pretrained(folder / "llama", dtype=torch.float32)
    windows = torch.cat([torch.as_tensor(each) for each in rows if not isinstance(each, Examples)])
    with torch.no_grad():
        logits = model(windows[:, :-1]).logits
    expected = F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()).item()
    first = store.read_metrics(digest).filter(step=0)["validation_loss"].item()
    assert first == pytest.approx(expected, abs=1e-4)
    assert expected < 4


def test_arms_start_where_they_say(result: Any, folder: Path) -> None:
    store = Store(folder / "runs")
    checkpoint = Checkpoint.at("llama", folder).digest
    runs = {arm: store.read_run(digest) for arm, digest in result.runs.select("arm", "digest").iter_rows()}
    starts = {arm: run.start for arm, run in runs.items() if run is not None}
    assert [starts[arm].checkpoint for arm in ("base", "gqa", "window")] == [checkpoint] * 3
    assert starts["scratch"] is None
    assert (starts["again"].run, starts["again"].checkpoint) == (runs["base"].digest, None)
    steps = {arm: run.steps for arm, run in runs.items() if run is not None}
    assert steps == {"base": 4, "gqa": 4, "window": 2, "scratch": 4, "again": 2}
    assert "on top of the checkpoint llama (base, gqa, window and again)" in " ".join(result.notes())


def test_a_digest_is_of_the_content(folder: Path, tmp_path: Path) -> None:
    before = Checkpoint.at("llama", folder).digest
    moved = shutil.copytree(folder / "llama", tmp_path / "elsewhere")
    assert Checkpoint.at(moved, Path()).digest == before
    config = moved / "config.json"
    config.write_text(config.read_text().replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-05'))
    assert Checkpoint.at(moved, Path()).digest != before


def test_a_run_is_a_checkpoint(result: Any, folder: Path) -> None:
    (digest,) = result.runs.filter(arm="gqa")["digest"]
    found = Checkpoint.at(folder / "runs" / digest, Path())
    assert found.spec.layers[0].mixer.kv_heads == 2  # type: ignore[attr-defined]
    assert torch.equal(found.load().embedding.weight, zoo.open(folder / "runs" / digest / "model").embedding.weight)


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ({"base.checkpoint": "nowhere"}, "base.checkpoint: there is no folder"),
        ({"base.checkpoint": "texts"}, "is neither a transformers checkpoint"),
        ({"base.preset": "small"}, "cannot be combined with preset: set one of them to null"),
        ({"data.tokenizer": "bytes"}, "base starts from a checkpoint with another tokenizer: leave this out to use "),
        ({"arms.gqa.d_model": 64}, "cannot start from llama"),
        ({"arms.scratch.start.arm": "base", "arms.scratch.start.checkpoint": "llama"}, "set one of them to null"),
        ({"arms.scratch.start.fraction": 0.5}, "needs an arm or a checkpoint to start from"),
    ],
)
def test_what_cannot_start_is_named(folder: Path, sets: dict[str, Any], message: str) -> None:
    with pytest.raises(ablate.StudyError, match=message):
        ablate.load_study(folder / "up.yaml", sets=sets)


def test_a_checkpoint_without_a_tokenizer_needs_one_to_be_named(folder: Path, tmp_path: Path) -> None:
    bare = shutil.copytree(folder / "llama", tmp_path / "bare", ignore=shutil.ignore_patterns("tokenizer*"))
    sets: dict[str, Any] = {"base.checkpoint": str(bare)}
    with pytest.raises(
        ablate.StudyError, match=r"no tokenizer\.model, and no vocab\.json with merges\.txt: name its tokenizer in data"
    ):
        ablate.load_study(folder / "up.yaml", sets=sets)
    named = sets | {"data.tokenizer": {"kind": "file", "path": "llama/tokenizer.json"}}
    assert ablate.load_study(folder / "up.yaml", sets=named).arms


STUDENT = """
question: Does a student learn?
base: {preset: small, d_model: 16, n_layers: 1}
arms: {taught: {teacher: {checkpoint: llama}}}
data: {source: files, paths: ["texts/*.txt"], tokenizer: TOKENIZER}
train: {context: 32, batch: 4}
tune: off
budget: {tokens: 512}
"""


def test_a_student_reads_text_with_the_tokenizer_of_its_teacher(folder: Path, tmp_path: Path) -> None:
    path = folder / "taught.yaml"
    path.write_text(STUDENT.replace("TOKENIZER", "{kind: bpe, vocab_size: 264}"))  # as many ids, with other meanings
    with pytest.raises(
        ablate.StudyError, match=r"llama has another tokenizer than taught: set data.tokenizer to \{kind"
    ):
        ablate.load_study(path)
    path.write_text(STUDENT.replace("TOKENIZER", "{kind: file, path: llama/tokenizer.json}"))
    assert ablate.load_study(path).arms
    other = shutil.copytree(folder / "llama", tmp_path / "other")
    byte_tokenizer().save(str(other / "tokenizer.json"), pretty=True)  # not the same file as `bytes` saves
    path.write_text(STUDENT.replace("TOKENIZER", "bytes").replace("llama", str(other)))
    assert ablate.load_study(path).arms


@pytest.mark.parametrize(
    ("edits", "train", "reason"),
    [
        ({"block.mixer": "mamba2"}, "documents: apart", "`documents: apart` does not support the mixer mamba2"),
        ({"visible": "all"}, "documents: joined", "next_token needs a causal model, but visible is all"),
    ],
)
def test_a_teacher_reads_what_its_student_reads(
    edits: dict[str, Any], train: str, reason: str, folder: Path, tmp_path: Path
) -> None:
    zoo.save(zoo.build(zoo.load("small", vocab_size=257, d_model=16, n_layers=1).edit(edits)), tmp_path / "other")
    path = folder / "reads.yaml"
    path.write_text(STUDENT.replace("TOKENIZER", "bytes").replace("llama", str(tmp_path / "other")))
    with pytest.raises(ablate.StudyError, match=f"arms.taught.teacher: .*other cannot teach taught: .*{reason}"):
        ablate.load_study(path, sets=[f"train.objective={{kind: next_token, {train}}}"])


def test_an_unreadable_teacher_is_named_at_its_place_beside_other_problems(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.json").write_text('{"model_type": "nosuch"}')
    path = folder / "unreadable.yaml"
    written = STUDENT.replace("TOKENIZER", "bytes").replace(
        "checkpoint: llama}}", f"checkpoint: {tmp_path / 'bad'}}}}}"
    )
    path.write_text(written.replace("arms: {", "arms: {other: {start: {arm: nosuch}}, "))
    with pytest.raises(ablate.StudyError) as raised:
        ablate.load_study(path)
    places = {problem.path for problem in raised.value.problems}
    assert places == {"arms.other.start.arm", "arms.taught.teacher"}


def test_damaged_weights_are_one_line(folder: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(folder / "llama", tmp_path / "broken")
    next(broken.glob("*-00002-*.safetensors")).write_bytes(b"torn")
    with pytest.raises(CheckpointError, match="broken: "):
        Checkpoint.at(broken, Path()).load()
