"""A new user brings a checkpoint, an adapter, a folder of C4's shards and a task of their own, by the commands of
docs/checkpoints_taken.md, and reads what is taken before anything is trained."""

from __future__ import annotations

import gzip
import json
import random
import re
import shlex
from pathlib import Path

import pytest
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

import zoo
from ablate.cli import main
from tests.ablate.test_conventions import _made
from tests.guides.guide import ROOT, files_of
from zoo.hf import spec_of

WORDS = ["the", "cat", "sat", "on", "a", "mat", "then", "in", "between", "thin", "ink", "and", "drank", "tea"]
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files of the page lie, beside what the user brings."""
    for name, text in files_of("checkpoints_taken.md").items():
        if name.endswith(".yaml"):
            (tmp_path / name).write_text(text, encoding="utf-8")
    item = {"question": "the cat sat on", "choices": [" the mat", " tea"], "answer": 0}
    (tmp_path / "cats.jsonl").write_text(f"{json.dumps(item)}\n" * 12, encoding="utf-8")
    _made(tmp_path / "mine", begins=True)
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "mine")
    config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    get_peft_model(base, config).save_pretrained(tmp_path / "adapter")
    draw = random.Random(0)
    (tmp_path / "c4").mkdir()
    for shard in range(2):
        rows = [{"text": " ".join(draw.choices(WORDS, k=draw.randint(30, 200))), "url": "http://a"} for _ in range(100)]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "c4" / f"c4-train.{shard:05}-of-01024.json.gz").write_bytes(gzip.compress(lines.encode()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commands() -> list[list[str]]:
    page = (ROOT / "docs" / "checkpoints_taken.md").read_text(encoding="utf-8")
    section = page.partition("## Check what is read, before training")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    return [shlex.split(line, comments=True)[1:] for line in block.splitlines()]


@pytest.mark.slow
def test_what_is_taken_is_read_before_anything_is_trained(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = {}
    for words in commands():
        assert main(words) == 0, words
        said[" ".join(words[:2])] = capsys.readouterr()
    taken, told = said["data c4.yaml"]
    checkpoint = [
        f"checkpoint mine: llama, {zoo.cost(spec_of(desk / 'mine')).params:,} parameters",
        "checkpoint mine: tokenizer tokenizer.json; begins every text with <s>",
    ]
    assert told.splitlines()[:2] == checkpoint
    rows = dict(re.split(r"  +", line, maxsplit=1) for line in taken.splitlines() if line)
    assert (rows["files"], rows["documents"], rows["duplicates"]) == ("2 JSON", "200", "0")
    assert rows["begins"].split()[0] in WORDS
    assert set(checkpoint) < set(said["plan c4.yaml"].out.splitlines())
    trained = said["run c4.yaml"].err.splitlines()
    assert trained.index(checkpoint[1]) < next(i for i, line in enumerate(trained) if line.startswith("[1/"))
    imported = said["import adapter"].err
    assert f"peft adapter, rank 4 on q_proj, v_proj, merged into {desk / 'mine'}" in imported
    assert "adapter: reading held-out text, with its BOS before every window" in imported
    for command in ("run c4.yaml", "import adapter", "eval adapter"):
        assert re.search(r"cats +acc ", said[command].out) or command == "run c4.yaml"
    assert not [path for path in desk.iterdir() if path.suffix in (".tmp", ".lock")]
