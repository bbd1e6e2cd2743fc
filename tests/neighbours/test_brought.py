"""Neighbours that no other test brings in."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Gemma3TextConfig

import ablate
import zoo
from ablate.data import Corpus, open_corpus
from ablate.wings.starts.checkpoints import Checkpoint
from store import Store
from tests.data.test_sentencepiece import sentencepiece, sentencepiece_model
from tests.zoo.hf.parity import draw, hf_model
from tests.zoo.hf.test_adapters import trained

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
"""peft asks transformers in a way that is deprecated."""
SENTENCES = [f"Sentence {i} of a text,\n\tover lines: ﬁ ½ naïve ▁x </s>.\n" for i in range(60)]


def test_a_checkpoint_with_only_a_model_of_sentencepiece_reads_text(tmp_path: Path) -> None:
    """Imported from the folder, with the ids of the library sentencepiece on the text that it reads."""
    content = sentencepiece_model(model_type="bpe", byte_fallback=True)
    theirs: Any = sentencepiece.SentencePieceProcessor(model_proto=content)
    config = draw("llama", 0)
    config.vocab_size, config.max_position_embeddings = theirs.vocab_size(), 64
    hf_model(config).save_pretrained(tmp_path / "mine")
    (tmp_path / "mine" / "tokenizer.model").write_bytes(content)
    for number, text in enumerate(SENTENCES):
        (tmp_path / f"{number}.txt").write_text(text, encoding="utf-8")
    said: list[str] = []
    found = ablate.import_model(
        tmp_path / "mine",
        text=[str(tmp_path / "*.txt")],
        context=32,
        measure=False,
        store=tmp_path / "runs",
        progress=said.append,
    )
    run = Store(found.store).read_run(found.digest)
    assert run is not None
    corpus = open_corpus(Store(found.store).data(run.data.digest).path)
    assert isinstance(corpus, Corpus)
    ids = [theirs.eos_id(), *(i for text in corpus.held_out("test") for i in [*theirs.encode(text), theirs.eos_id()])]
    assert corpus.tokens("test").tolist() == ids
    assert any(line.startswith("checkpoint mine: tokenizer tokenizer.model") for line in said)
    assert said.index("files: files read as 60 text") < said.index("mine: reading held-out text")


def test_gemma_3_has_the_vocabulary_of_transformers() -> None:
    default = Gemma3TextConfig().vocab_size
    assert {size: zoo.load(f"gemma3-{size}").vocab_size for size in ("4b", "12b")} == dict.fromkeys(
        ("4b", "12b"), default
    )


def test_an_adapter_with_a_nan_is_one_line(tmp_path: Path) -> None:
    trained(tmp_path)
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    weights = load_file(path)
    weights[min(weights)][0, 0] = torch.nan
    save_file(weights, path, {"format": "pt"})
    with pytest.raises(
        zoo.UnsupportedError, match=r"lora_A.*: contains infinities or NaN .*adapter_model\.safetensors"
    ) as refused:
        zoo.from_hf(tmp_path / "adapter")
    assert len(str(refused.value).splitlines()) == 1


def test_an_adapter_tells_what_it_is_before_it_is_merged(tmp_path: Path) -> None:
    trained(tmp_path)
    shutil.copytree(tmp_path / "adapter", tmp_path / "mine")
    model, adapter, tokenizer = Checkpoint.at(tmp_path / "mine", Path()).receipt
    assert model == f"checkpoint mine: llama, {zoo.cost(zoo.from_hf(tmp_path / 'mine').spec).params:,} parameters"
    said = f"peft adapter, rank 2 on down_proj, q_proj, merged into {tmp_path / 'base'}"
    assert adapter == f"checkpoint mine: {said}"
    assert "has no tokenizer.json" in tokenizer
