"""lm-eval end to end on a zoo model: scores recomputed by hand, nothing printed, nothing downloaded."""

from __future__ import annotations

import gzip
import json
import math
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lm_eval
import numpy as np
import pytest
import torch
from lm_eval.tasks.manager import TaskManager
from tokenizers import Tokenizer

import zoo
from evals.harness.evaluations.tasks import TasksSpec
from evals.harness.lm import ZooLM
from evals.harness.loading import UnknownTaskError, load_tasks
from evals.harness.selection import TASK_FOLDER
from evals.harness.tasks import heldout
from evals.spec import EvalSpec, Evaluation
from tests.evals.bytelevel import EOS
from tests.evals.harness.evaluated import evaluate
from zoo.model import Decoder

CONTEXT = 256
Run = Callable[..., Evaluation]


@pytest.fixture(scope="session")
def documents() -> list[str]:
    """Sources of the standard library: real text on every machine."""
    folder = Path(json.__file__).parent
    return [p.read_text(encoding="utf-8") for p in sorted(folder.glob("*.py")) if p.stat().st_size > 1000]


@pytest.fixture
def run(model: Decoder, byte_tokenizer: Tokenizer, documents: list[str]) -> Run:
    def go(**changes: Any) -> Evaluation:
        spec = EvalSpec(**{"limit": 24, **changes})
        return evaluate(model, byte_tokenizer, documents, spec, context=CONTEXT, eos=EOS)

    return go


def total_log_p(model: Decoder, context: str, text: str) -> float:
    tokens = list(context.encode()) or [EOS]
    tokens += text.encode()
    with torch.inference_mode():
        log_p = model(torch.tensor([tokens]))[0].double().log_softmax(-1)
    return sum(float(log_p[i - 1, tokens[i]]) for i in range(len(tokens) - len(text.encode()), len(tokens)))


def test_accuracy_and_its_standard_error(run: Run, model: Decoder, documents: list[str]) -> None:
    found = run(tasks=("heldout_pairs",)).document.scores["heldout_pairs"]["acc"]
    items = heldout.pairs(documents, seed=0, items=500, context_characters=96, continuation_characters=32)["test"]
    right = [
        int(np.argmax([total_log_p(model, c, item["continuation"]) for c in item["contexts"]]) == item["label"])
        for item in items.to_list()[:24]
    ]
    assert found.value == pytest.approx(np.mean(right))
    assert found.stderr == pytest.approx(np.std(right, ddof=1) / math.sqrt(24))
    assert found.chance == 0.5
    assert found.higher_is_better is True
    assert found.items == 24


def test_bits_per_byte_of_passages_that_fit_the_window(run: Run, model: Decoder, tmp_path: Path) -> None:
    """A task file of one's own that asks for short passages, found by folder."""
    text = (TASK_FOLDER / "heldout_text.yaml").read_text(encoding="utf-8")
    task = text.replace("heldout_text", "short_text").replace("2048", "100").replace("passages: 32", "passages: 6")
    (tmp_path / "short.yaml").write_text(task, encoding="utf-8")
    document, samples = run(tasks=("short_text",), include=(str(tmp_path),))
    scores, plain = document.scores["short_text"], [s.model_dump() for s in samples]
    nats = [-s["filtered_resps"][0] for s in plain]
    sizes = [s["metrics"]["bits_per_byte"][1] for s in plain]
    expected = [-total_log_p(model, "", s["target"]) for s in plain]
    assert nats == pytest.approx(expected, abs=1e-3)
    assert scores["bits_per_byte"].value == pytest.approx(sum(nats) / sum(sizes) / math.log(2))
    assert scores["byte_perplexity"].value == pytest.approx(math.exp(sum(nats) / sum(sizes)))
    assert (scores["bits_per_byte"].stderr or 0) > 0
    assert scores["bits_per_byte"].higher_is_better is False


def test_the_document_and_the_samples_are_json_and_repeatable(run: Run) -> None:
    first, second = run(), run()
    json.dumps([first.document.model_dump(), *(s.model_dump() for s in first.samples)], allow_nan=False)
    assert first == second
    assert first.document.request == EvalSpec(limit=24).model_dump(mode="json")
    assert set(first.document.scores) == {"heldout_pairs", "heldout_text"}
    assert [s.task for s in first.samples].count("heldout_pairs") == 24
    assert all(isinstance(s.document, int) for s in first.samples)


def test_a_model_of_nans_has_no_score(byte_tokenizer: Tokenizer, documents: list[str], model: Decoder) -> None:
    broken = zoo.build(model.spec)
    with torch.no_grad():
        broken.embedding.weight.fill_(float("nan"))
    spec = EvalSpec(tasks=("heldout_text",), limit=4)
    document, samples = evaluate(broken, byte_tokenizer, documents, spec, context=CONTEXT, eos=EOS)
    assert document.scores["heldout_text"]["bits_per_byte"].value is None
    json.dumps([document.model_dump(), *(s.model_dump() for s in samples)], allow_nan=False)


def test_nothing_is_printed_or_fetched(
    run: Run, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    run(limit=2)
    out, err = capfd.readouterr()
    assert out == ""
    assert err == ""


def test_built_in_tasks_load_quickly(documents: list[str]) -> None:
    start = time.perf_counter()
    loaded = load_tasks(TasksSpec(), documents)
    assert time.perf_counter() - start < 2
    assert set(loaded.tasks) == {"heldout_pairs", "heldout_text"}


def test_simple_evaluate_runs_the_tasks(
    model: Decoder, byte_tokenizer: Tokenizer, documents: list[str], run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    manager = TaskManager(
        include_path=TASK_FOLDER, include_defaults=False, metadata={"documents": documents, "seed": 0}
    )
    lm = ZooLM(model, byte_tokenizer, eos=EOS, context=CONTEXT)
    results = lm_eval.simple_evaluate(lm, tasks=["heldout_pairs"], task_manager=manager, limit=24)
    capfd.readouterr()
    ours = run(tasks=("heldout_pairs",)).document.scores["heldout_pairs"]["acc"]
    assert results["results"]["heldout_pairs"]["acc,none"] == pytest.approx(ours.value)


def test_a_task_of_ones_own_over_files(run: Run, real_text: Path, tmp_path: Path) -> None:
    """A BLiMP paradigm, given by the path of its task file."""
    with gzip.open(real_text / "blimp" / "wh_island.jsonl.gz") as packed, (tmp_path / "data.jsonl").open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    task = tmp_path / "wh_island.yaml"
    task.write_text(
        f"""
task: blimp_wh_island
dataset_path: json
dataset_kwargs: {{data_files: {{test: {tmp_path / "data.jsonl"}}}, cache_dir: {tmp_path / "cache"}}}
test_split: test
output_type: multiple_choice
doc_to_text: ""
doc_to_target: 0
doc_to_choice: "{{{{[sentence_good, sentence_bad]}}}}"
target_delimiter: ""
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
""",
        encoding="utf-8",
    )
    score = run(tasks=(str(task),), limit=8).document.scores["blimp_wh_island"]["acc"]
    assert score.value is not None and 0 <= score.value <= 1
    assert score.chance == 0.5


def test_an_unknown_task_is_named(documents: list[str]) -> None:
    with pytest.raises(UnknownTaskError, match="heldout_pears"):
        load_tasks(TasksSpec(tasks=("heldout_pears",)), documents)


@pytest.mark.slow
def test_a_small_trained_model_is_above_chance(byte_tokenizer: Tokenizer) -> None:
    """0.1 M parameters, a few hundred steps of the standard library's sources."""
    texts = [
        p.read_text(encoding="utf-8", errors="ignore") for p in sorted(Path(json.__file__).parents[1].glob("*.py"))
    ]
    held, train = texts[::20], "".join(t for i, t in enumerate(texts) if i % 20)
    data = torch.tensor(list(train.encode()))
    model = zoo.build(zoo.load("small", d_model=64, n_layers=2, vocab_size=257))
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    draw = torch.Generator().manual_seed(0)
    for _ in range(300):
        starts = torch.randint(len(data) - 129, (16,), generator=draw)
        rows = torch.stack([data[s : s + 129] for s in starts.tolist()])
        loss, _ = model.loss(rows[:, :-1], rows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    spec = EvalSpec(tasks=("heldout_pairs",))
    score = evaluate(model, byte_tokenizer, held, spec, context=128, eos=EOS).document.scores["heldout_pairs"]["acc"]
    assert score.value is not None and score.stderr is not None
    assert score.stderr < 0.03
    assert score.value > 0.5 + 3 * score.stderr
